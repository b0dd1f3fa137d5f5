/* A learner's snapshots, and the way back to one of them. */

import { access, watchScope } from "./access.js";
import { ask, Away, get, learnerPath, reasonOf } from "./api.js";
import { announce, dialog } from "./dialogs.js";
import { arrange, el, write } from "./dom.js";
import { bytes, count, moment } from "./format.js";
import { rounds } from "./live.js";

const PERIOD = 30; // seconds between looks, where nothing is heard of a new one

/* One may be taken anew at the position of another. */
const keyOf = (snapshot) => (snapshot ? `${snapshot.position} ${snapshot.time}` : null);

export class Snapshots {
  #newest = null;

  constructor({ name }, signal, again) {
    this.name = name;
    this.again = again;
    this.list = el("tbody");
    this.note = el("p", { class: "quiet", text: "asking …" });
    this.table = el(
      "table",
      { class: "plain", hidden: true },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          [["Taken"], ["Position", "number"], ["Size", "number"]].map(([text, names]) =>
            el("th", { scope: "col", class: names, text }),
          ),
          el("td"), // of the buttons
        ),
      ),
      this.list,
    );
    this.why = el("p", { class: "withheld", hidden: true });
    this.element = el(
      "section",
      { class: "panel", data: { panel: "snapshots" } },
      el("h3", { text: "Snapshots" }),
      this.note,
      this.table,
      this.why,
    );
    watchScope("admin", signal, () => this.#withhold());
    this.look = rounds(
      async () => this.#show(await get(learnerPath(name, "/snapshots"), { signal })),
      PERIOD,
      signal,
      (error) => {
        if (error instanceof Away) return null;
        write(this.note, `No snapshots: ${reasonOf(error)}`);
        return PERIOD;
      },
    );
  }

  take({ snapshot }) {
    const newest = keyOf(snapshot);
    if (newest !== this.#newest) this.look();
    this.#newest = newest;
  }

  #show({ snapshots }) {
    this.table.hidden = snapshots.length === 0;
    this.note.hidden = snapshots.length > 0;
    write(this.note, "None yet. One is taken by itself now and then, and with the button above.");
    arrange(
      this.list,
      snapshots,
      keyOf,
      (snapshot) =>
        el(
          "tr",
          {},
          el("td", { text: moment(snapshot.time) }),
          el("td", { class: "number", text: count(snapshot.position) }),
          el("td", { class: "number", text: bytes(snapshot.size) }),
          el(
            "td",
            {},
            el("button", {
              type: "button",
              text: "Restore …",
              "aria-label": `Restore the snapshot at position ${snapshot.position}`,
              on: { click: () => this.#restore(snapshot) },
            }),
          ),
        ),
    );
    this.#withhold();
  }

  #withhold() {
    const reason = access.lacks("admin");
    for (const button of this.list.querySelectorAll("button")) button.disabled = reason !== null;
    this.why.hidden = reason === null || this.table.hidden;
    write(this.why, reason === null ? "" : `None can be restored here: ${reason}`);
  }

  async #restore({ position, time }) {
    const done = await dialog({
      title: `Roll ${this.name} back?`,
      confirm: "Roll back",
      dangerous: true,
      body: [
        el("p", {
          text:
            `It goes on from ${moment(time)}, log position ${count(position)}. ` +
            "What was learnt after it is undone: model, threshold, metrics and remembered ids.",
        }),
      ],
      submit: () => ask("POST", learnerPath(this.name, `/snapshots/${position}/restore`), { patience: 60 }),
      reason: reasonOf,
    });
    if (done === undefined) return;
    announce(`${this.name} goes on from position ${count(position)}.`);
    this.again();
  }
}
