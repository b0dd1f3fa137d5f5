/* The models of an ensemble: what each weighs in the combination, and how it does. */

import { arrange, el, write } from "./dom.js";
import { count, NOTHING, signed } from "./format.js";

const metric = (x) => (x === null ? NOTHING : x.toFixed(3));

// head, title, and the cell of a member
const COLUMNS = [
  [
    "Weight",
    "what one standard deviation of the model's score adds to the log-odds",
    ({ weight }) => (weight === null ? NOTHING : signed(2)(weight)),
  ],
  ["AUC", "of the model's score, over its last events", ({ auc }) => metric(auc)],
  ["AP", "average precision of the model's score, over its last events", (member) => metric(member.average_precision)],
  ["Events", "labelled events that AUC and AP are of", ({ events }) => count(events)],
];

export class Members {
  constructor() {
    this.list = el("tbody");
    this.element = el(
      "section",
      { class: "panel", data: { panel: "members" } },
      el("h3", { text: "Models" }),
      el("p", { class: "quiet", text: "Scores from before each label was learnt. The last row is the combination." }),
      el(
        "table",
        { class: "plain" },
        el(
          "thead",
          {},
          el(
            "tr",
            {},
            el("th", { scope: "col", text: "Model" }),
            COLUMNS.map(([text, title]) => el("th", { scope: "col", class: "number", text, title })),
          ),
        ),
        this.list,
      ),
    );
  }

  take({ members }) {
    arrange(
      this.list,
      members,
      ({ name }) => name,
      ({ name, kind }) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, name, " ", el("small", { text: kind })),
          COLUMNS.map(() => el("td", { class: "number" })),
        ),
      (row, member) => COLUMNS.forEach(([, , cell], i) => write(row.cells[i + 1], cell(member))),
    );
  }
}
