/* A slider over thresholds: what each would have done with the labelled events of the window. */

import { watchScope } from "./access.js";
import { Confusion } from "./curves.js";
import { el, freshId, put, write } from "./dom.js";
import { fixed, NOTHING, rate, short } from "./format.js";
import { basis, OutcomeTable } from "./outcomes.js";
import { TablePanel } from "./table_panel.js";

const POINTS = 100;
const PATH = `/thresholds?points=${POINTS}`;
const COSTS = [
  ["false_positive", "Cost of a false alarm"],
  ["false_negative", "Cost of a missed positive"],
];

export class Thresholds extends TablePanel {
  #rows = [];
  #at = null; // the threshold that the reader chose; null: the one in force
  #reply = null;

  /** `apply` receives settings of the threshold that the reader wants to set. */
  constructor({ name }, signal, apply) {
    const [id, described] = [freshId(), freshId()];
    const slider = el("input", { id, type: "range", min: 0, step: 1, "aria-describedby": described });
    const level = el("output", { for: id });
    const table = new OutcomeTable("Metrics of the window", ["as decided", "at this threshold"]);
    const confusion = new Confusion("At this threshold", "confusion");
    const button = (action, text, names = "") => el("button", { type: "button", class: names, data: { trial: action }, text });
    const buttons = { live: button("in-force", "To the one in force"), apply: button("apply", "Set this threshold …", "primary") };
    const costs = COSTS.map(([cost, text]) =>
      el(
        "label",
        {},
        `${text} `,
        el("input", { name: cost, type: "number", min: 0, step: "any", inputmode: "decimal" }),
      ),
    );
    const withheld = el("p", { class: "help", hidden: true });
    const content = el(
      "div",
      { class: "trial" },
      el(
        "div",
        { class: "stack" },
        el("p", { class: "level" }, el("label", { for: id, text: "Threshold" }), level),
        slider,
        el("p", { id: described, class: "help", text: "Left: more alerts. Right: fewer." }),
        el("p", { class: "buttons" }, buttons.live, buttons.apply),
        withheld,
        el("form", { class: "costs", on: { submit: (event) => event.preventDefault() } }, costs),
      ),
      table.element,
      confusion.element,
    );
    const about = { name, panel: "thresholds", title: "Try a threshold", path: PATH, missing: "No thresholds" };
    super(about, content, content, signal);
    content.hidden = true;
    Object.assign(this, { slider, level, outcomes: table, confusion, buttons });
    this.inputs = costs.map((label) => label.querySelector("input"));
    slider.addEventListener("input", () => this.#choose(this.#rows[slider.value].threshold));
    buttons.live.addEventListener("click", () => this.#choose(null));
    buttons.apply.addEventListener("click", () => apply({ objective: "fixed", value: this.#row.threshold }));
    for (const input of this.inputs) input.addEventListener("change", () => this.#price());
    watchScope("admin", signal, (reason) => {
      buttons.apply.disabled = reason !== null;
      withheld.hidden = reason === null;
      write(withheld, reason === null ? "" : `Not allowed: ${reason}`);
    });
  }

  show(reply) {
    this.#reply = reply;
    this.#rows = rowsOf(reply);
    this.table.hidden = this.#rows.length === 0;
    if (this.#rows.length === 0) return `Nothing to try: ${reply.undefined["/points"]}.`;
    put(this.slider, "max", this.#rows.length - 1);
    this.inputs.forEach((input) => put(input, "placeholder", reply.costs === null ? NOTHING : short(reply.costs[input.name])));
    this.buttons.live.disabled = reply.live === null;
    write(this.buttons.live, reply.live === null ? "None in force" : `To the one in force: ${short(reply.threshold)}`);
    put(this.buttons.live, "title", reply.live === null ? reply.undefined["/live"] : null);
    this.outcomes.fill(0, reply.actual, reply.undefined, "actual");
    this.#move();
    return `What thresholds would have done with ${basis(reply)}.`;
  }

  get #row() {
    return this.#rows[this.slider.value];
  }

  #choose(threshold) {
    this.#at = threshold;
    this.#move();
  }

  /** Put the slider where the chosen threshold is, or the nearest, and show what it comes to. */
  #move() {
    const at = this.#at ?? this.#reply.threshold ?? this.#rows.at(-1).threshold;
    const places = this.#rows.map(({ threshold }, i) => [Math.abs(threshold - at), i]);
    this.slider.value = places.reduce((nearest, place) => (place[0] < nearest[0] ? place : nearest))[1];
    const { threshold, figures } = this.#row;
    write(this.level, String(threshold));
    const part = (name, text, as) => (figures[name] === null ? null : `${text} ${as(figures[name])}`);
    const words = [part("precision", "precision", fixed(2)), part("recall", "recall", fixed(2)), part("alerts_per_day", "alerts a day", rate)];
    put(this.slider, "aria-valuetext", [short(threshold), ...words.filter((text) => text !== null)].join(", "));
    this.outcomes.fill(1, figures, this.#reply.undefined, figures === this.#reply.live ? "live" : "points");
    this.confusion.classes(figures.confusion, `Of the window at ${short(threshold)}: truth by row, decision by column`);
  }

  /** Look again, with what errors cost. */
  #price() {
    const costs = this.inputs.filter(({ value }) => Number(value) > 0).map(({ name, value }) => [name, value]);
    this.path = [PATH, ...costs.map((pair) => pair.join("="))].join("&");
    this.renew();
  }
}

/** A row for each threshold of the reply, ascending, with the one in force among them. */
function rowsOf({ points, threshold, live }) {
  if (points === null) return [];
  const rows = points.threshold.map((at, i) => ({
    threshold: at,
    figures: Object.fromEntries(
      Object.entries(points).map(([name, list]) => [
        name,
        name === "confusion"
          ? Object.fromEntries(Object.entries(list).map(([cell, counts]) => [cell, counts[i]]))
          : (list?.[i] ?? null),
      ]),
    ),
  }));
  if (live !== null) rows.push({ threshold, figures: live });
  return rows.sort((a, b) => a.threshold - b.threshold);
}
