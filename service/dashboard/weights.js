/* The features that a learner goes by: its largest weights. */

import { Away, get, learnerPath, reasonOf } from "./api.js";
import { arrange, el, put, write } from "./dom.js";
import { count, finite, signed } from "./format.js";
import { rounds } from "./live.js";

const PERIOD = 10; // seconds between looks, while events come
const TOP = 20;

const HASHED = " The names of hashed features are kept nowhere: scoring an event tells those of its own.";

/** As the column has room for: +1.250, −8.12e-11. */
function number(x) {
  const size = Math.abs(x);
  return x === 0 || (size >= 0.001 && size < 1e5) ? signed(3)(x) : `${x < 0 ? "−" : "+"}${size.toExponential(2)}`;
}

export class Weights {
  #position = null;
  #asked = null;

  constructor({ name, config }, signal) {
    this.name = name;
    this.hint = config.features.kind === "named" ? HASHED : "";
    this.list = el("tbody");
    this.note = el("p", { class: "quiet", text: "asking …" });
    this.table = el(
      "table",
      { class: "bars" },
      el(
        "thead",
        { class: "unseen" },
        el(
          "tr",
          {},
          ["Feature", "Weight", ""].map((text) => el("th", { scope: "col", text })),
        ),
      ),
      this.list,
    );
    this.element = el("section", { class: "panel" }, el("h3", { text: "Largest weights" }), this.note, this.table);
    rounds(
      () => this.#look(signal),
      PERIOD,
      signal,
      (error) => {
        if (error instanceof Away) return false;
        this.table.hidden = true;
        write(this.note, `No weights: ${reasonOf(error)}`);
        return true;
      },
    );
  }

  take({ position }) {
    this.#position = position;
  }

  async #look(signal) {
    if (this.#asked !== null && this.#asked === this.#position) return false;
    const asked = this.#position;
    const { intercept, weights, total, reason } = await get(learnerPath(this.name, `/weights?top=${TOP}`), { signal });
    this.#asked = asked;
    this.table.hidden = weights.length === 0;
    write(
      this.note,
      weights.length === 0
        ? `No weights: ${reason ?? "nothing has been learnt yet"}`
        : `${count(weights.length)} of ${count(total)}; intercept ${finite(intercept, number)}.${this.hint}`,
    );
    bars(
      this.list,
      weights.map(({ name, weight }) => [name, weight]),
    );
    return true;
  }
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
