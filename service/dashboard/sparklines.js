/* Small drawings in SVG: hundreds of them stand in a table, where a chart library would be too heavy. */

import { el, put, svg, write } from "./dom.js";

const WIDTH = 120;
const HEIGHT = 28;
const PAD = 2;

/** Create an empty line of a metric over time. */
export function sparkline() {
  return svg(
    "svg",
    { class: "spark", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", "aria-label": "nothing yet" },
    svg("path", { class: "chance" }),
    svg("path", { class: "line" }),
    svg("circle", { class: "end", r: 0 }),
  );
}

/** Draw the values (null is a gap). The scale is the values' own, never finer than `least` from end to end. */
export function drawSparkline(drawing, values, label, { least = 0.05, chance = null } = {}) {
  const numbers = values.filter((value) => value !== null);
  let [low, high] = [Math.min(...numbers), Math.max(...numbers)];
  if (high - low < least) {
    const middle = (low + high) / 2;
    [low, high] = [middle - least / 2, middle + least / 2];
  }
  const x = (i) => PAD + (i * (WIDTH - 2 * PAD - 4)) / Math.max(1, values.length - 1);
  const y = (value) => HEIGHT - PAD - ((value - low) * (HEIGHT - 2 * PAD)) / (high - low);
  let path = "";
  values.forEach((value, i) => {
    if (value !== null)
      path += `${path === "" || values[i - 1] === null ? "M" : "L"}${x(i).toFixed(1)} ${y(value).toFixed(1)}`;
  });
  const [level, line, end] = drawing.children;
  const within = chance !== null && numbers.length > 0 && low <= chance && chance <= high;
  put(level, "d", within ? `M0 ${y(chance).toFixed(1)}H${WIDTH}` : "");
  put(line, "d", path);
  const last = values.at(-1) ?? null;
  put(end, "r", last === null ? 0 : 2.5);
  put(end, "cx", last === null ? 0 : x(values.length - 1).toFixed(1));
  put(end, "cy", last === null ? 0 : y(last).toFixed(1));
  put(drawing, "aria-label", numbers.length === 0 ? "nothing yet" : label);
}

/** A value with its interval on the scale from `low` to `high`, with a mark at `zero` if it is given. */
export function whisker() {
  return svg(
    "svg",
    { class: "whisker", viewBox: "0 0 200 16", preserveAspectRatio: "none", "aria-hidden": "true" },
    svg("line", { class: "zero", y1: 0, y2: 16 }),
    svg("line", { class: "reach", y1: 8, y2: 8 }),
    svg("line", { class: "point", y1: 2, y2: 14 }),
  );
}

/** The head of a column of whiskers: what the ends of their scale are, which `drawScale` says. */
export const scaleHead = () =>
  el("td", { "aria-hidden": "true" }, el("div", { class: "scale" }, el("span"), el("span")));

export function drawScale(head, ...ends) {
  [...head.firstElementChild.children].forEach((place, i) => write(place, ends[i]));
}

export function drawWhisker(drawing, value, interval, { low, high, zero = null }) {
  const x = (v) => (200 * (Math.min(Math.max(v, low), high) - low)) / (high - low || 1);
  const [mark, reach, point] = drawing.children;
  const set = (line, a, b) => {
    put(line, "x1", a.toFixed(1));
    put(line, "x2", b.toFixed(1));
  };
  const away = -10;
  set(mark, zero === null ? away : x(zero), zero === null ? away : x(zero));
  set(reach, interval === null ? away : x(interval[0]), interval === null ? away : x(interval[1]));
  set(point, value === null ? away : x(value), value === null ? away : x(value));
}
