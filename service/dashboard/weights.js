/* The features that a learner goes by: its largest weights. */

import { arrange, el, put, write } from "./dom.js";
import { count, finite, signed } from "./format.js";
import { TablePanel } from "./table_panel.js";

const SOON = 2; // seconds until names may have come that the last answer lacked
const TOP = 20;

/** What to say of features whose names are not known yet. */
const nameless = (unnamed) =>
  unnamed > 0 ? ` ${count(unnamed)} unnamed so far: names appear with the next event that has the feature.` : "";

/** As the column has room for: +1.250, −8.12e-11. */
function number(x) {
  const size = Math.abs(x);
  return x === 0 || (size >= 0.001 && size < 1e5) ? signed(3)(x) : `${x < 0 ? "−" : "+"}${size.toExponential(2)}`;
}

export class Weights extends TablePanel {
  #unnamed = 0;

  constructor({ name }, signal) {
    const list = el("tbody");
    const table = barsTable("Weight", list);
    const path = `/weights?top=${TOP}`;
    super({ name, panel: "weights", title: "Largest weights", path, missing: "No weights" }, table, table, signal);
    this.list = list;
  }

  /** Names come with events that are only scored, too, and these move no position. */
  get stale() {
    return super.stale || this.#unnamed > 0;
  }

  show({ intercept, weights, total, unnamed, reason }) {
    if (unnamed > this.#unnamed) setTimeout(this.hurry, 1000 * SOON);
    this.#unnamed = unnamed;
    bars(
      this.list,
      weights.map(({ name, weight }) => [name, weight]),
    );
    this.table.hidden = weights.length === 0;
    return weights.length === 0
      ? `No weights: ${reason ?? "nothing has been learnt yet"}`
      : `${count(weights.length)} of ${count(total)}; intercept ${finite(intercept, number)}.${nameless(unnamed)}`;
  }
}

/** A table for `bars` in `body`: of features and a number of each, which is called `what`. */
export function barsTable(what, body, caption = null) {
  return el(
    "table",
    { class: "bars" },
    caption === null ? null : el("caption", { text: caption }),
    el(
      "colgroup",
      {},
      [0, 1, 2].map(() => el("col")),
    ),
    el(
      "thead",
      { class: "unseen" },
      el(
        "tr",
        {},
        ["Feature", what].map((text) => el("th", { scope: "col", text })),
        el("td", { "aria-hidden": "true" }),
      ),
    ),
    body,
  );
}

/** Rows of a name, a number, and a bar from the middle to the left (against) or to the right (for).
 *
 * A number that has overflowed is null, and has no bar.
 */
export function bars(body, rows) {
  const most = Math.max(...rows.map(([, value]) => Math.abs(value ?? 0)), 1e-300);
  arrange(
    body,
    rows,
    ([name]) => name,
    ([name]) =>
      el(
        "tr",
        {},
        el("th", { scope: "row", text: name, title: name }),
        el("td", { class: "number" }),
        el("td", { class: "bar", "aria-hidden": "true" }, el("span")),
      ),
    (row, [, value]) => {
      write(row.cells[1], finite(value, number));
      put(row.cells[2], "data-sign", value < 0 ? "against" : "for");
      row.cells[2].firstChild.style.setProperty("--part", (Math.abs(value ?? 0) / most).toFixed(4));
    },
  );
}
