/* What can be done to a learner: threshold, snapshot, clone, delete, each behind a question; and export. */

import { watchScope } from "./access.js";
import { onward } from "./address.js";
import { ask, Away, get, learnerPath, reasonOf, reasonsOf, send } from "./api.js";
import { announce, dialog } from "./dialogs.js";
import { el, freshId, write } from "./dom.js";
import { thresholdOf } from "./metrics.js";
import { bytes, count, counted, moment, short } from "./format.js";
import { OBJECTIVES } from "./objectives.js";
import { Preview } from "./outcomes.js";
import { SchemaForm } from "./schema_form.js";

export class Actions {
  constructor(learner, signal, again) {
    this.again = again;
    this.take(learner);
    const id = freshId();
    const button = (action, text, act, names = "") =>
      el("button", { type: "button", class: names, data: { action }, text, on: { click: () => this.#tried(act) } });
    const changes = [
      learner.config.threshold === null ? null : button("threshold", "Threshold …", () => this.#changeThreshold()),
      button("snapshot", "Snapshot …", () => this.#snapshot()),
      button("clone", "Clone …", () => this.#clone()),
      button("export", "Export", () => this.#export()),
      button("delete", "Delete …", () => this.#delete(), "danger"),
    ].filter((button) => button !== null);
    const why = el("p", { id, class: "withheld", hidden: true });
    this.element = el(
      "div",
      { class: "actions", role: "group", "aria-label": `What can be done to ${learner.name}`, "aria-describedby": id },
      changes,
      why,
    );
    watchScope("admin", signal, (reason) => {
      for (const button of changes) button.disabled = reason !== null;
      why.hidden = reason === null;
      write(why, reason === null ? "" : `Not allowed: ${reason}`);
    });
  }

  take(learner) {
    this.learner = learner;
  }

  #path(rest = "") {
    return learnerPath(this.learner.name, rest);
  }

  async #tried(act) {
    try {
      await act();
    } catch (error) {
      announce(`${this.learner.name}: ${reasonOf(error)}`);
    }
  }

  /** Have the threshold changed, with these settings entered already. */
  applyThreshold(entered) {
    return this.#tried(() => this.#changeThreshold(entered));
  }

  async #changeThreshold(entered = null) {
    const { algorithms, parts } = await get("algorithms", { interactive: true });
    const { name, config } = this.learner;
    const form = new SchemaForm(parts.threshold, {
      values: config.threshold,
      defaults: algorithms.find((entry) => entry.name === config.algorithm)?.usual[config.features.kind]?.threshold,
      choices: { objective: OBJECTIVES },
      whole: true,
      changed: () => preview.soon(form.read()),
    });
    if (entered !== null) form.enter(entered);
    const preview = new Preview(name);
    preview.show(form.read());
    const done = await dialog({
      title: `What the threshold of ${name} is for`,
      confirm: "Change threshold",
      body: [
        el("p", { text: "What was learnt stays; the threshold follows from it at once." }),
        form.element,
        preview.element,
      ],
      submit: () => form.submit((threshold) => ask("PATCH", this.#path(), { body: { threshold } }), "/threshold"),
      reason: reasonsOf,
    });
    preview.end();
    if (done === undefined) return;
    const { value, reason } = thresholdOf(done);
    const now = value === null ? `no threshold yet: ${reason}` : `it is ${short(value)}`;
    announce(`The threshold of ${name} follows ${done.config.threshold.objective} now; ${now}.`);
    this.again();
  }

  async #snapshot() {
    const { name } = this.learner;
    const done = await dialog({
      title: `Take a snapshot of ${name}?`,
      confirm: "Save snapshot",
      body: [
        el("p", { text: "The state as it is now is saved, to go back to." }),
        el("p", {
          text: "Only the newest few are kept, those that the service takes by itself among them: Export saves it for good.",
        }),
      ],
      submit: () => ask("POST", this.#path("/snapshots"), { patience: 60 }),
      reason: reasonOf,
    });
    if (done === undefined) return;
    announce(`Snapshot of ${name}: position ${count(done.position)}, ${bytes(done.size)}, ${moment(done.time)}.`);
    this.again();
  }

  async #clone() {
    const { name } = this.learner;
    const id = freshId();
    const input = el("input", { id, value: `${name}-copy`.slice(0, 100), autocomplete: "off", spellcheck: "false" });
    const done = await dialog({
      title: `Clone ${name}`,
      confirm: "Clone it",
      body: [
        el("p", { text: "A new learner with all that this one has learnt; from then on each goes its own way." }),
        el("label", { for: id, text: "Name of the new one" }),
        input,
      ],
      submit: () => ask("POST", this.#path("/clone"), { body: { to: input.value.trim() }, patience: 60 }),
      reason: (error) => reasonsOf(error, { "/to": "Name of the new one" }),
    });
    if (done === undefined) return;
    announce(`${done.name} is a clone of ${name}.`, { href: `#/learners/${encodeURIComponent(done.name)}` });
  }

  /** As a file; through fetch, since a plain link could not send a key. */
  async #export() {
    const { name } = this.learner;
    const reply = await send("GET", this.#path("/export"), { interactive: true });
    const named = /filename="([^"/\\]+)"/.exec(reply.headers.get("content-disposition") ?? "")?.[1];
    const file = await reply.blob().catch(() => {
      throw new Away(); // it broke off half-way
    });
    const address = URL.createObjectURL(file);
    el("a", { href: address, download: named ?? `${name}.rarestream` }).click();
    setTimeout(() => URL.revokeObjectURL(address), 60_000);
  }

  async #delete() {
    const { name, events } = this.learner;
    const go = onward();
    const id = freshId();
    const input = el("input", { id, autocomplete: "off", spellcheck: "false" });
    const done = await dialog({
      title: `Delete ${name}?`,
      confirm: "Delete it for good",
      dangerous: true,
      body: [
        el("p", {
          text: `Its log, its snapshots and all that it learnt from ${counted(events, "event")} are gone then, for good.`,
        }),
        el("label", { for: id, text: `Type ${name} to confirm` }),
        input,
      ],
      submit: async () => {
        if (input.value.trim() !== name) throw new RangeError("this is not its name");
        await ask("DELETE", this.#path(), { patience: 60 });
        return true;
      },
      reason: (error) => (error instanceof RangeError ? error.message : reasonOf(error)),
    });
    if (done === undefined) return;
    announce(`${name} is deleted.`);
    go("#/");
  }
}
