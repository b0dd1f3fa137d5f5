/* The alarms of a learner with their state, and what people noted, in one list; forms to acknowledge and to annotate. */

import { watchScope } from "./access.js";
import { alarmWords, annotationWords } from "./alarm_words.js";
import { ask, get, learnerPath, reasonsOf } from "./api.js";
import { announce, dialog } from "./dialogs.js";
import { arrange, el, freshId, write } from "./dom.js";
import { count, moment, wholeMoment } from "./format.js";

const LIVE = ["open", "reopened"]; // states of an alarm that nobody knows of

let writer = ""; // who wrote the last note from this page

export class Alarms {
  #reason = null; // why nothing can be written
  #signal;
  #changed;

  /** `changed` is called with the alarms and the annotations. */
  constructor({ name }, signal, changed) {
    this.name = name;
    this.#signal = signal;
    this.#changed = changed;
    this.list = el("ol", { class: "alarms", tabindex: "0", "aria-label": "Alarms and annotations, the newest first" });
    this.none = el("p", { class: "quiet", text: "None so far." });
    this.why = el("p", { class: "withheld", hidden: true });
    this.write = el("button", { type: "button", text: "Annotate …", on: { click: () => this.#annotate() } });
    this.element = el(
      "section",
      { class: "panel", data: { panel: "alarms" } },
      el("header", { class: "bar" }, el("h3", { text: "Alarms and annotations" }), this.write),
      this.none,
      this.list,
      this.why,
    );
    watchScope("update", signal, (reason) => {
      this.#reason = reason;
      this.#withhold();
    });
  }

  /** Fetch and show them. */
  async load() {
    const [{ alarms }, { annotations }] = await Promise.all(
      ["/alarms", "/annotations"].map((path) => get(learnerPath(this.name, path), { signal: this.#signal })),
    );
    const entries = [...annotations, ...alarms].sort((a, b) => b.events - a.events || b.number - a.number);
    this.none.hidden = entries.length > 0;
    this.list.hidden = entries.length === 0;
    arrange(this.list, entries, keyOf, (entry) => (entry.state === undefined ? noteItem(entry) : this.#alarmItem(entry)));
    this.#withhold();
    this.#changed(alarms, annotations);
  }

  #alarmItem(alarm) {
    const { number, state, acknowledged: signature } = alarm;
    const button = el("button", {
      type: "button",
      text: "Acknowledge …",
      "aria-label": `Acknowledge alarm ${number}`,
      on: { click: () => this.#acknowledge(alarm) },
    });
    return el(
      "li",
      { data: { state } },
      when(alarm),
      badge(state),
      LIVE.includes(state) ? button : null,
      el("p", { text: alarmWords(alarm) }),
      signature === null ? null : el("p", { class: "quiet", text: signed(signature), title: wholeMoment(signature.time) }),
    );
  }

  #withhold() {
    const buttons = [this.write, ...this.list.querySelectorAll("button")];
    for (const button of buttons) button.disabled = this.#reason !== null;
    this.why.hidden = this.#reason === null;
    write(this.why, this.#reason === null ? "" : `Nothing can be noted here: ${this.#reason}`);
  }

  async #acknowledge(alarm) {
    const { number } = alarm;
    const done = await this.#ask({
      title: `Acknowledge alarm ${number}`,
      confirm: "Acknowledge",
      about: alarmWords(alarm),
      label: "Note (may be empty)",
      path: `/alarms/${number}/acknowledge`,
      member: "note",
    });
    if (done !== undefined) announce(`Alarm ${number} of ${this.name} is acknowledged.`);
  }

  async #annotate() {
    const done = await this.#ask({
      title: `Annotate ${this.name}`,
      confirm: "Note it",
      about: "A deployment, a campaign, or whatever else explains the metrics. It stands at this moment in every chart.",
      label: "What happened",
      path: "/annotations",
      member: "text",
    });
    if (done !== undefined) announce(`Noted on ${this.name}.`);
  }

  async #ask({ title, confirm, about, label, path, member }) {
    const [by, text] = [freshId(), freshId()];
    const area = el("textarea", { id: text, rows: "3", maxlength: "1000" });
    const name = el("input", { id: by, value: writer, maxlength: "100", autocomplete: "name" });
    const done = await dialog({
      title,
      confirm,
      body: [
        el("p", { text: about }),
        el("label", { for: text, text: label }),
        area,
        el("label", { for: by, text: "Your name (may be empty)" }),
        name,
      ],
      submit: () => {
        writer = name.value.trim();
        return ask("POST", learnerPath(this.name, path), { body: { [member]: area.value.trim(), by: writer || null } });
      },
      reason: (error) => reasonsOf(error, { [`/${member}`]: label, "/by": "Your name" }),
    });
    await this.load().catch(() => undefined); // the page asks again with the next change
    return done;
  }
}

/** An alarm with another state is another item, and so is one with another signature. */
const keyOf = ({ number, kind, state, acknowledged: signature }) => `${kind} ${number} ${state} ${signature?.time}`;

const when = ({ clock, events }) =>
  clock === null
    ? el("strong", { text: `event ${count(events)}` })
    : el("strong", { text: moment(clock), title: `${wholeMoment(clock)}, at event ${count(events)}` });

const badge = (text) => el("span", { class: "badge", text });

const noteItem = (entry) =>
  el("li", { data: { kind: entry.kind } }, when(entry), badge(entry.kind), el("p", { text: annotationWords(entry) }));

const signed = ({ by, key, note }) => `acknowledged by ${by ?? key ?? "somebody"}${note ? `: ${note}` : ""}`;
