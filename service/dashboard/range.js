/* The fields beside charts in which the part of their axis that is shown can be typed; the address keeps it. */

import { boundOf, tellUnread, unreadNote, unreadOf } from "./address.js";
import { placeOf } from "./charts.js";
import { el, put } from "./dom.js";
import { local } from "./format.js";

const SPANS = { "1 h": 3600, "24 h": 86400, "7 d": 7 * 86400, "30 d": 30 * 86400 };

export class RangeFields {
  #by = null;
  #last = null; // the latest place on the axis
  #query;
  #note = unreadNote();
  #presets = Object.entries(SPANS).map(([text, span]) =>
    el("button", { type: "button", text, hidden: true, on: { click: () => this.#latest(span) } }),
  );
  #inputs = ["from", "to"].map((end) => el("input", { name: end, "aria-label": `${end} (of the axis)` }));

  /** `query` is the address's. `onBounds` receives what to keep there: {from, to}, null where there is none, and `by` with
   * bounds in events, as time may be the axis before long. What stands `before` the fields belongs to the axis, too.
   * Until an axis is known they only keep their place. */
  constructor(query, onBounds, ...before) {
    this.#query = query;
    this.onBounds = onBounds;
    this.element = el(
      "form",
      {
        class: "range",
        inert: true,
        on: {
          change: ({ target }) => this.#inputs.includes(target) && this.#typed(),
          submit: (event) => event.preventDefault(),
        },
      },
      ...before,
      this.#inputs.map((input) => el("label", {}, `${input.name} `, input)),
      this.#presets,
      el("button", { type: "button", text: "All", on: { click: () => this.choose(null) } }),
      this.#note,
    );
  }

  /** Show the address's bounds, of an axis by "clock" or by "events". */
  show(by) {
    this.#by = by;
    put(this.element, "inert", null);
    for (const preset of this.#presets) preset.hidden = by !== "clock";
    for (const input of this.#inputs) {
      put(input, "type", by === "clock" ? "datetime-local" : "number");
      put(input, "step", by === "clock" ? "1" : "any");
      const at = boundOf(this.#query, input.name, by);
      input.value = at === null ? "" : by === "clock" ? local(at) : at;
    }
  }

  /** Say what of the address is not followed on an axis with something at these places. */
  showUnread(places) {
    this.#last = places.at(-1) ?? null;
    tellUnread(this.#note, unreadOf(this.#query, this.#by, places));
  }

  /** The reader zoomed in a chart, whose range this is as Plotly gives it; null: out. */
  choose(range) {
    const [from, to] = range === null ? [null, null] : range.map((end) => placeOf(end, this.#by === "clock"));
    this.#keep({ from, to });
    this.show(this.#by);
  }

  /** Show the last seconds of the axis. */
  #latest(span) {
    if (this.#last === null) return;
    this.#keep({ from: this.#last - span, to: null });
    this.show(this.#by);
  }

  #typed() {
    const bounds = {};
    for (const { name, value } of this.#inputs) {
      const at = this.#by === "clock" ? new Date(value).getTime() / 1000 : Number(value);
      bounds[name] = value === "" || !Number.isFinite(at) ? null : at;
    }
    this.#keep(bounds);
  }

  #keep(bounds) {
    const any = Object.values(bounds).some((bound) => bound !== null);
    this.onBounds(any && this.#by === "events" ? { ...bounds, by: "events" } : bounds);
  }
}
