/* The figures of each value of a segment field. */

import { arrange, el, put, write } from "./dom.js";
import { between, count, counted, fixed, NOTHING, share } from "./format.js";
import { TablePanel } from "./table_panel.js";

const MOST = 20; // values in the table, the largest first

const shares = (ends) => ends.map(share).join(" to ");

// member of a segment, head, title, and how it and its interval are shown
const FIGURES = [
  ["auc", "AUC", "of the scores from before each label", fixed(3), between],
  ["precision", "Precision", "share of the alerts that are positive", share, shares],
  ["alert_rate", "Alert rate", "share of events that were alerts", share, shares],
  ["label_rate", "Label rate", "share of labels that are positive", share, shares],
];

const pathOf = (field) => `/segments?by=${encodeURIComponent(field)}&limit=${MOST}`;

/** The rows of the table: [key, text, title, segment, pointer]. */
function rowsOf({ segments, other, missing, all }) {
  const pooled = [
    ["other", "all other values", other],
    ["missing", "no value", missing],
  ];
  return [
    ["all", "whole window", "", all, "all"],
    ...segments.map((segment, i) => [`=${segment.value}`, segment.value, segment.value, segment, `segments/${i}`]),
    ...pooled.filter(([, , { events }]) => events > 0).map(([key, text, segment]) => [key, text, "", segment, key]),
  ];
}

/** What the table leaves out. */
function summary({ all, minimum_positives: least, pooled_values: pooled, unrecorded }) {
  return [
    `${counted(all.events, "labelled event")} of the window. AUC, precision and label rate need ${counted(least, "positive")}.`,
    pooled > 0 ? `${counted(pooled, "smaller value")} under all other values.` : "",
    unrecorded > 0 ? `${counted(unrecorded, "event")} came before the field was declared.` : "",
  ]
    .filter((text) => text !== "")
    .join(" ");
}

export class Segments extends TablePanel {
  constructor({ name, config }, signal) {
    const list = el("tbody");
    const table = el(
      "table",
      { class: "plain wide", hidden: true },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          el("th", { scope: "col", text: "Value" }),
          [["Events", "labelled"], ["Positives", "labelled positive"], ...FIGURES.map(([, text, title]) => [text, title])].map(
            ([text, title]) => el("th", { scope: "col", class: "number", text, title }),
          ),
        ),
      ),
      list,
    );
    const choice = el("select", { "aria-label": "Segment field", on: { change: () => this.#choose() } });
    const content = el(
      "div",
      {},
      el("p", {}, choice),
      el("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": "Table of segments" }, table),
    );
    const path = pathOf(config.figures.segments[0] ?? "");
    super({ name, panel: "segments", title: "Segments", path, missing: "No segments" }, table, content, signal);
    this.list = list;
    this.choice = choice;
    this.#offer(config.figures.segments);
  }

  /** The settings may have other fields by now. */
  take(learner) {
    this.#offer(learner.config.figures.segments);
    super.take(learner);
  }

  get stale() {
    return this.choice.options.length > 0 && super.stale;
  }

  #offer(fields) {
    this.element.hidden = fields.length === 0;
    if (fields.join("\n") === [...this.choice.options].map(({ value }) => value).join("\n")) return;
    const before = this.choice.value;
    this.choice.replaceChildren(...fields.map((text) => el("option", { value: text, text })));
    if (fields.includes(before)) this.choice.value = before;
    else if (fields.length > 0) this.#choose();
  }

  #choose() {
    this.path = pathOf(this.choice.value);
    this.renew();
  }

  show(reply) {
    arrange(
      this.list,
      rowsOf(reply),
      ([key]) => key,
      ([, text, title]) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", text, title }),
          el("td", { class: "number" }),
          el("td", { class: "number" }),
          FIGURES.map(() => el("td", { class: "number" }, el("span"), " ", el("small"))),
        ),
      (row, [, , , segment, pointer]) => {
        write(row.cells[1], count(segment.events));
        write(row.cells[2], count(segment.class_counts.positive));
        FIGURES.forEach(([name, , , as, interval], i) => {
          const [value, more] = row.cells[i + 3].children;
          const [figure, ends] = [segment[name], segment[`${name}_interval`]];
          write(value, figure === null ? NOTHING : as(figure));
          write(more, ends === null ? "" : interval(ends));
          put(row.cells[i + 3], "title", reply.undefined[`/${pointer}/${name}`] ?? null);
        });
      },
    );
    this.table.hidden = false;
    return summary(reply);
  }
}
