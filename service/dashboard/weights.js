/* The features that a learner goes by: its largest weights. */

import { Away, get, learnerPath, reasonOf } from "./api.js";
import { arrange, el, put, write } from "./dom.js";
import { count, finite, signed } from "./format.js";
import { rounds } from "./live.js";

const PERIOD = 10; // seconds between looks, while events come
const SOON = 2; // and until names may have come that the last answer lacked
const TOP = 20;

/** What to say of features whose names are not known yet. */
const nameless = (unnamed) =>
  unnamed > 0 ? ` ${count(unnamed)} unnamed so far: names appear with the next event that has the feature.` : "";

/** As the column has room for: +1.250, −8.12e-11. */
function number(x) {
  const size = Math.abs(x);
  return x === 0 || (size >= 0.001 && size < 1e5) ? signed(3)(x) : `${x < 0 ? "−" : "+"}${size.toExponential(2)}`;
}

export class Weights {
  #position = null;
  #fetched = null;
  #unnamed = 0;
  #hurry;

  /** `names` receives the names of the weights. */
  constructor({ name }, signal, names) {
    this.name = name;
    this.names = names;
    this.list = el("tbody");
    this.note = el("p", { class: "quiet", text: "asking …" });
    this.table = barsTable("Weight", this.list);
    this.element = el("section", { class: "panel" }, el("h3", { text: "Largest weights" }), this.note, this.table);
    this.#hurry = rounds(
      () => this.#look(signal),
      PERIOD,
      signal,
      (error) => {
        if (error instanceof Away) return null;
        this.table.hidden = true;
        write(this.note, `No weights: ${reasonOf(error)}`);
        return PERIOD;
      },
    );
  }

  take({ position }) {
    this.#position = position;
  }

  async #look(signal) {
    // names come with events that are only scored, too, and these move no position
    if (this.#fetched !== null && this.#fetched === this.#position && !this.#unnamed) return false;
    const position = this.#position;
    const reply = await get(learnerPath(this.name, `/weights?top=${TOP}`), { signal });
    const { intercept, weights, total, unnamed, reason } = reply;
    this.#fetched = position;
    if (unnamed > this.#unnamed) setTimeout(this.#hurry, 1000 * SOON);
    this.#unnamed = unnamed;
    this.table.hidden = weights.length === 0;
    write(
      this.note,
      weights.length === 0
        ? `No weights: ${reason ?? "nothing has been learnt yet"}`
        : `${count(weights.length)} of ${count(total)}; intercept ${finite(intercept, number)}.${nameless(unnamed)}`,
    );
    this.names(weights.map((one) => one.name));
    bars(
      this.list,
      weights.map(({ name, weight }) => [name, weight]),
    );
    return true;
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
