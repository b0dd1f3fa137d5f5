/* What decisions by other thresholds come to: figures side by side, and a preview of settings before they are set. */

import { ask, Away, learnerPath, reasonsOf, reasonOf } from "./api.js";
import { el, write } from "./dom.js";
import { between, count, counted, fixed, NOTHING, rate, short } from "./format.js";

const PAUSE = 400; // milliseconds without an entry until it is previewed

const cost = (x) => (x >= 1000 ? count(Math.round(x)) : short(x));
const span = (as) => ([low, high]) => `${as(low)} to ${as(high)}`;

// member of the document, label, and how it and its interval are shown
const FIGURES = [
  ["precision", "Precision", fixed(3), between],
  ["recall", "Recall", fixed(3), between],
  ["f1", "F1", fixed(3), between],
  ["alerts_per_day", "Alerts per day", rate, span(rate)],
  ["cost", "Cost of errors", cost, span(cost)],
];

/** A table of figures, a column for each of `headings`. */
export class OutcomeTable {
  reasons = []; // why figures are null: of each column, by figure

  constructor(caption, headings) {
    this.headings = headings;
    this.rows = FIGURES.map(([, label]) =>
      el(
        "tr",
        {},
        el("th", { scope: "row", text: label }),
        headings.map(() => el("td", { class: "number" }, el("span"), el("small"))),
      ),
    );
    this.why = el("p", { class: "help" });
    this.element = el(
      "div",
      { class: "outcomes" },
      el(
        "table",
        { class: "plain" },
        el("caption", { class: "unseen", text: caption }),
        el("thead", {}, el("tr", {}, el("td"), headings.map((text) => el("th", { scope: "col", class: "number", text })))),
        el("tbody", {}, this.rows),
      ),
      this.why,
    );
  }

  /** Show in a column the figures that a document has as `member`, with its reasons for those that are null. */
  fill(column, figures, reasons, member) {
    this.reasons[column] = FIGURES.map(([name]) => reasons[`/${member}/${name}`]);
    FIGURES.forEach(([name, , as, interval], i) => {
      const [value, more] = this.rows[i].cells[column + 1].children;
      const present = figures !== null && figures[name] !== null;
      write(value, present ? as(figures[name]) : NOTHING);
      write(more, present ? interval(figures[`${name}_interval`]) : "");
    });
    const lines = FIGURES.flatMap(([, label], i) => {
      const columns = this.headings.filter((_, k) => this.reasons[k]?.[i] !== undefined);
      if (columns.length === 0) return [];
      const where = columns.length < this.headings.length ? ` ${columns[0]}` : "";
      const reason = this.reasons.map((list) => list[i]).find((text) => text !== undefined);
      return [`No ${label === "F1" ? label : label.toLowerCase()}${where}: ${reason}.`];
    });
    write(this.why, lines.join(" "));
  }
}

/** The events and the costs behind figures, in words. */
export function basis({ window: { events, class_counts: counts, label_coverage: coverage } }) {
  const partly =
    coverage !== null && coverage < 0.9
      ? `; labels of ${short(100 * coverage)} % of the scored events have come, and alerts among the others are not counted`
      : "";
  return `${counted(events, "labelled event")} of the window, ${count(counts.positive)} positive${partly}`;
}

/** What settings of a threshold would have decided, beside what was decided. */
export class Preview {
  #timer = 0;
  #turn = 0; // only the reply to the newest settings is shown

  constructor(name) {
    this.name = name;
    this.note = el("p", { class: "quiet", role: "status" });
    this.table = new OutcomeTable("What was decided, and what these settings would have decided", [
      "as decided",
      "with these settings",
    ]);
    this.table.element.hidden = true;
    this.element = el("div", { class: "preview" }, el("h3", { text: "Over the window" }), this.note, this.table.element);
  }

  /** Show it for these settings, once they rest. */
  soon(settings) {
    clearTimeout(this.#timer);
    this.#timer = setTimeout(() => this.show(settings), PAUSE);
  }

  /** Show nothing more. */
  end() {
    clearTimeout(this.#timer);
    this.#turn += 1;
  }

  async show(settings) {
    const turn = (this.#turn += 1);
    try {
      const path = learnerPath(this.name, "/thresholds/preview");
      const reply = await ask("POST", path, { body: settings, interactive: false });
      if (turn === this.#turn) this.#take(reply);
    } catch (error) {
      if (turn !== this.#turn) return;
      this.table.element.hidden = true;
      write(this.note, error instanceof Away ? `No preview: ${reasonOf(error)}.` : `No preview yet: ${reasonsOf(error)}.`);
    }
  }

  #take(reply) {
    const { threshold, threshold_range: range, preview, actual, undefined: reasons } = reply;
    const now = threshold === null ? `no threshold yet: ${reasons["/threshold"]}` : `the threshold would be ${short(threshold)} now`;
    const moved = range === null || range[0] === range[1] ? "" : `, and from ${short(range[0])} to ${short(range[1])} on the way`;
    const why = preview === null ? `; no preview: ${reasons["/preview"]}` : "";
    write(this.note, `Of ${basis(reply)}: ${now}${moved}${why}.`);
    this.table.element.hidden = preview === null;
    this.table.fill(0, actual, reasons, "actual");
    this.table.fill(1, preview, reasons, "preview");
  }
}
