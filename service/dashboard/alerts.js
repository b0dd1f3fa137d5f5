/* The scored events of one learner as a queue: the alerts without a label, the highest score first, with their reasons.
 *
 *     j, k or the arrows: the next, the one before    f: fraud (label 1)    l: legitimate (label 0)    u: undo
 *     x: select, for several at once                  Enter: all of it      f and l go to the selected, if any are
 * A label waits before it is sent (pending_labels.js). What others label meanwhile leaves the queue at the next look.
 */

import { access, watchScope } from "./access.js";
import { get, learnerPath, reasonOf, Refused } from "./api.js";
import { announce } from "./dialogs.js";
import { arrange, el, freshId, put, write } from "./dom.js";
import { count, counted, finite, fixed, moment, NOTHING, share, wholeMoment } from "./format.js";
import { fieldsOf, isolated, ranked, reasonWords, stepWords, valueWords } from "./event_words.js";
import { budgetWords } from "./health.js";
import { absent, RARELY, rounds } from "./live.js";
import { LABELS, PendingLabels } from "./pending_labels.js";
import { bars, barsTable } from "./weights.js";

const PERIOD = 5; // seconds between looks
const PAGE = 50; // events of a look, and as many more by the button
const MOST = 1000; // events that a look may have
const REASONS = 3; // in a row
const ALL_REASONS = 12; // of an event that is opened
const FIELDS = 4; // in a row

const STATUSES = [
  ["alert", "Alerts without a label"],
  ["unlabelled", "All without a label"],
  ["labelled", "Labelled"],
  ["expired", "Expired"],
  ["all", "All scored events"],
];
const SORTS = [
  ["score", "Highest score"],
  ["time", "Newest"],
];

export function show(main, place, signal) {
  document.title = `Alerts of ${place.name} – rarestream`;
  const queue = new Queue(place, signal);
  main.append(queue.element);
  queue.start();
}

class Queue {
  #events = [];
  #at = 0; // the row that the keys are for
  #limit = PAGE;
  #open = null; // id of the event that is shown whole
  #selected = new Set();

  constructor(place, signal) {
    this.place = place;
    this.signal = signal;
    this.name = place.name;
    this.labels = new PendingLabels(
      place.name,
      signal,
      (text) => write(this.progress, text),
      () => this.hurry(),
      () => Math.max(...this.#events.map(({ time }) => time ?? -Infinity)),
    );
    const { query } = place;
    this.status = this.#select("Show", STATUSES, query.get("status") ?? "alert", "status");
    this.sort = this.#select("Order", SORTS, query.get("sort") ?? "score", "sort");
    this.find = el("input", {
      id: freshId(),
      type: "search",
      value: query.get("q") ?? "",
      placeholder: "id…, or FIELD=VALUE",
      on: { change: () => this.#choose({ q: this.find.value }) },
    });
    this.note = el("p", { class: "quiet", role: "status", text: "asking …" });
    this.body = el("tbody");
    this.table = el(
      "table",
      { class: "plain queue", hidden: true, "aria-label": "Scored events" },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("td"),
          ["Probability", "Event", "Fields", "Why", "Time", "Label"].map((text, i) =>
            el("th", { scope: "col", class: i === 0 ? "number" : null, text }),
          ),
        ),
      ),
      this.body,
    );
    this.fraud = el("button", { type: "button", text: "Fraud (f)", on: { click: () => this.#label(1) } });
    this.fine = el("button", { type: "button", text: "Legitimate (l)", on: { click: () => this.#label(0) } });
    this.undo = el("button", { type: "button", text: "Undo (u)", disabled: true, on: { click: () => this.#undo() } });
    this.progress = el("span", { class: "quiet", role: "status" });
    this.withheld = el("p", { class: "withheld", hidden: true });
    this.more = el("button", { type: "button", text: "Show more", hidden: true, on: { click: () => this.#further() } });
    this.element = el(
      "div",
      { class: "stack" },
      el(
        "header",
        { class: "title" },
        el("p", {}, el("a", { href: `#/learners/${encodeURIComponent(this.name)}`, text: this.name })),
        el("h1", { text: `Alerts of ${this.name}` }),
      ),
      el(
        "section",
        { class: "panel stack", "aria-label": "Queue" },
        el(
          "p",
          { class: "buttons" },
          this.status.field,
          this.sort.field,
          el("label", { for: this.find.id, text: "Find" }),
          this.find,
        ),
        this.note,
        el("p", { class: "buttons" }, this.fraud, this.fine, this.undo, this.progress, this.withheld),
        el("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": "Table of events" }, this.table),
        this.more,
        el("p", {
          class: "help",
          text: "Keys: j and k move, f fraud, l legitimate, u undo, x select, Enter opens. f and l go to the selected events, or to the marked one.",
        }),
      ),
    );
  }

  #select(label, options, value, name) {
    const id = freshId();
    const element = el(
      "select",
      { id, on: { change: () => this.#choose({ [name]: element.value }) } },
      options.map(([option, text]) => el("option", { value: option, text, selected: option === value })),
    );
    return { element, field: [el("label", { for: id, text: label }), element] };
  }

  start() {
    const { signal } = this;
    watchScope("update", signal, (reason) => {
      for (const button of [this.fraud, this.fine]) button.disabled = reason !== null;
      this.withheld.hidden = reason === null;
      write(this.withheld, reason === null ? "" : `Nothing can be labelled here: ${reason}`);
    });
    access.addEventListener("change", () => this.hurry?.(), { signal }); // features may be shown now
    document.addEventListener("keydown", (event) => this.#key(event), { signal });
    this.hurry = rounds(
      () => this.#look(),
      PERIOD,
      signal,
      (error) => {
        if (!(error instanceof Refused)) return null;
        this.table.hidden = true;
        write(this.note, `No events: ${reasonOf(error)}`);
        return absent(error) ? RARELY : PERIOD;
      },
    );
  }

  /** What is listed from now on; it stands in the address. */
  #choose(values) {
    this.place.keep(values);
    this.#limit = PAGE;
    this.#at = 0;
    this.#selected.clear();
    this.labels.forget();
    this.hurry();
  }

  #further() {
    this.#limit = Math.min(this.#limit + PAGE, MOST);
    this.hurry();
  }

  #query() {
    const filters = {
      status: this.status.element.value.replace("all", ""),
      sort: this.sort.element.value,
      q: this.place.query.get("q") ?? "",
      limit: this.#limit,
      ...(access.lacks("events") === null ? { explain: REASONS } : {}),
    };
    return String(new URLSearchParams(Object.entries(filters).filter(([, value]) => value !== "")));
  }

  async #look() {
    const query = this.#query();
    const ask = (path) => get(learnerPath(this.name, path), { signal: this.signal });
    const [{ events, cursor, scanned }, { alert_budget: use = null }] = await Promise.all([ask(`/events?${query}`), ask("")]);
    if (query !== this.#query()) return this.#look(); // something else was chosen meanwhile
    const listed = new Set(events.map(({ id }) => id));
    for (const id of this.#selected) if (!listed.has(id)) this.#selected.delete(id);
    const marked = this.#events[this.#at]?.id;
    // what is labelled here stays until it has been sent
    this.#events = [...this.#events.filter(({ id }) => this.labels.has(id) && !listed.has(id)), ...events];
    // where the marked event has left the queue, none is marked: a key must not label another one
    this.#at = marked === undefined ? this.#at : this.#events.findIndex(({ id }) => id === marked);
    if (marked !== undefined && this.#at < 0) write(this.progress, `${isolated(marked)} has left the queue; j goes to the first.`);
    this.more.hidden = events.length < this.#limit || this.#limit >= MOST;
    const all = cursor === null && events.length < this.#limit;
    const several = all ? "" : `, of ${count(scanned)} that were looked through`;
    const words = events.length === 0 ? this.#nothing(scanned) : `${counted(events.length, "event")}${several}.`;
    write(this.note, use === null ? words : `${words} ${budgetWords(use)}.`);
    this.#draw();
    return true;
  }

  #nothing(scanned) {
    if (scanned === 0) return "No event: the learner remembers none that was scored with an id.";
    if (this.status.element.value === "alert" && this.find.value === "") return "No alert is waiting for a label.";
    return `No such event among the ${count(scanned)} that were looked through.`;
  }

  /* ---- Rows ------------------------------------------------------------------------------------------------------ */

  #draw() {
    this.table.hidden = this.#events.length === 0;
    arrange(
      this.body,
      this.#events.flatMap((event) => (event.id === this.#open ? [event, { ...event, whole: true }] : [event])),
      ({ id, whole }) => (whole ? `whole ${id}` : `event ${id}`),
      (event) => (event.whole ? this.#whole(event) : this.#row(event)),
      (row, event) => event.whole || this.#update(row, event),
    );
    put(this.undo, "disabled", this.labels.size === 0);
  }

  #row({ id }) {
    const box = el("input", {
      type: "checkbox",
      "aria-label": `Select ${id}`,
      on: { change: () => this.#toggle(id) },
    });
    const opener = el("button", { type: "button", class: "link", dir: "auto", text: id, on: { click: () => this.#toggleWhole(id) } });
    return el(
      "tr",
      { on: { click: () => this.#mark(this.#events.findIndex((event) => event.id === id)) } },
      el("td", {}, box),
      el("td", { class: "number" }),
      el("th", { scope: "row" }, opener),
      el("td", { class: "words" }),
      el("td", { class: "words" }),
      el("td"),
      el("td"),
    );
  }

  #update(row, event) {
    const [box, probability, , fields, why, time, label] = row.cells;
    box.firstChild.checked = this.#selected.has(event.id);
    const chance = event.probability === null ? finite(event.score, fixed(4)) : share(event.probability);
    write(probability, chance);
    put(probability, "title", `score ${finite(event.score, fixed(4))}, threshold ${event.threshold ?? NOTHING}`);
    const pairs = ranked(event);
    const texts = pairs.slice(0, FIELDS).map(([name, value]) => `${isolated(name)} ${isolated(valueWords(value))}`);
    write(fields, texts.join(", ") + (pairs.length > FIELDS ? ", …" : ""));
    write(why, reasonWords(event.explanation));
    write(time, moment(event.time));
    put(time, "title", wholeMoment(event.time));
    write(label, this.#labelWords(event));
    const marked = this.#events[this.#at]?.id === event.id;
    put(row, "aria-current", marked);
    put(row, "data-waiting", this.labels.has(event.id));
  }

  #labelWords({ id, label, label_source: source, status }) {
    const words = this.labels.words(id);
    if (words !== null && (label === null || this.labels.has(id))) return words;
    if (label === null) return status === "expired" ? "expired" : NOTHING;
    return `${LABELS[label] ?? label}${source === "assumed" ? " (assumed)" : ""}`;
  }

  /** The event with all its fields, each a way to the events that share its value. */
  #whole(event) {
    const list = el("tbody");
    const table = barsTable("Contribution", list, "What contributes to its present score");
    table.hidden = true;
    const steps = el("ol", { class: "quiet", "aria-label": "What happened to it" });
    const explain = access.lacks("events") === null ? `?explain=${ALL_REASONS}` : "";
    get(learnerPath(this.name, `/events/${encodeURIComponent(event.id)}${explain}`), { signal: this.signal })
      .then(({ explanation, history, time }) => {
        steps.append(...history.map((step) => el("li", { text: stepWords(step, time) })));
        if (!explanation) return;
        const reasons = explanation.features.map(({ name, contribution }) => [name, contribution]);
        bars(list, reasons);
        table.hidden = false;
      })
      .catch((error) => this.signal.aborted || announce(`No more of ${event.id}: ${reasonOf(error)}`));
    const pairs = fieldsOf(event);
    const raw = event.x ?? (event.indices ? [event.indices, event.values] : null);
    return el(
      "tr",
      { class: "whole" },
      el(
        "td",
        { colspan: "7" },
        el(
          "div",
          { class: "columns" },
          el(
            "div",
            { class: "stack" },
            el(
              "dl",
              { class: "facts" },
              [
                ["Time", wholeMoment(event.time)],
                ["Score", finite(event.score, fixed(4))],
                ["Threshold", event.threshold === null ? NOTHING : share(event.threshold)],
                ["Scored at", `position ${count(event.position)}`],
              ].map(([term, text]) => el("div", {}, el("dt", { text: term }), el("dd", { text }))),
            ),
            pairs.length === 0
              ? el("p", { class: "quiet", text: raw === null ? this.#withoutFeatures(event) : JSON.stringify(raw) })
              : el(
                  "dl",
                  { class: "facts" },
                  pairs.map(([name, value]) =>
                    el("div", {}, el("dt", { text: name }), el("dd", {}, this.#others(name, value))),
                  ),
                ),
            steps,
          ),
          table,
        ),
      ),
    );
  }

  #withoutFeatures({ features }) {
    const reason = access.lacks("events");
    if (reason !== null) return `Its features cannot be shown: ${reason}.`;
    return features === null || features === undefined
      ? "Its features are not kept: late.keep_features is off, or was when it was scored."
      : "It has no features.";
  }

  #others(name, value) {
    const query = new URLSearchParams({ status: "all", sort: "time", q: `${name}=${valueWords(value)}` });
    const title = "the other events with this value";
    return el("a", { href: `#/alerts/${encodeURIComponent(this.name)}?${query}`, text: valueWords(value), title });
  }

  #mark(index) {
    if (index < 0 || index >= this.#events.length) return;
    this.#at = index;
    this.#draw();
    const row = [...this.body.children].find((child) => child.dataset.key === `event ${this.#events[index].id}`);
    row?.scrollIntoView({ block: "nearest" });
  }

  #toggle(id) {
    if (!this.#selected.delete(id)) this.#selected.add(id);
    this.#draw();
  }

  #toggleWhole(id) {
    this.#open = this.#open === id ? null : id;
    this.#draw();
  }

  /* ---- Labels ---------------------------------------------------------------------------------------------------- */

  #key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.target.closest?.("input:not([type=checkbox]), select, textarea")) return;
    const marked = this.#events[this.#at];
    const step = { j: 1, ArrowDown: 1, k: -1, ArrowUp: -1 }[event.key];
    if (step !== undefined) this.#mark(this.#at + step);
    else if (event.key === "u") this.#undo();
    else if (marked === undefined) return;
    else if (event.key === "f") this.#label(1);
    else if (event.key === "l") this.#label(0);
    else if (event.key === "x") this.#toggle(marked.id);
    else if (event.key === "Enter" && !["A", "BUTTON"].includes(event.target.tagName)) this.#toggleWhole(marked.id);
    else return;
    event.preventDefault();
  }

  /** Label the selected events, or the marked one. */
  #label(label) {
    const button = label === 1 ? this.fraud : this.fine;
    if (button.disabled) return;
    const ids = this.#selected.size > 0 ? [...this.#selected] : [this.#events[this.#at]?.id].filter(Boolean);
    if (ids.length === 0) return;
    this.labels.add(ids, label);
    this.#selected.clear();
    if (ids.length === 1 && this.#at < this.#events.length - 1) this.#at += 1;
    this.#draw();
  }

  #undo() {
    const ids = this.labels.undo();
    const index = this.#events.findIndex(({ id }) => id === ids[0]);
    if (index >= 0) this.#at = index;
    this.#draw();
  }
}
