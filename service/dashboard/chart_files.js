/* A chart as a file: its values as CSV, or its picture as PNG. */

import { el } from "./dom.js";

const WIDTH = 900; // pixels of a picture, before it is scaled
const HEIGHT = 450;
const SCALE = 2;

const cell = (value) => {
  const text = value === null || value === undefined ? "" : String(value);
  return /[",\r\n]/.test(text) ? `"${text.replaceAll('"', '""')}"` : text;
};

/** What a chart's x axis is of, as the head of a column. */
const headOf = ({ type, title }) => (type === "date" ? "local time" : (title ?? "x"));

/** The values of a chart, a line for each point; what only decorates it is left out. */
export function csvOf(traces, xaxis = {}) {
  const points = traces
    .filter(({ hoverinfo }) => hoverinfo !== "skip")
    .flatMap(({ name = "", x, y }) => Array.from(x, (place, i) => [name, place, y[i]]));
  return [["series", headOf(xaxis), "value"], ...points].map((row) => `${row.map(cell).join(",")}\n`).join("");
}

/** Let the browser save a text as a file. */
export function saveText(text, name, type) {
  const address = URL.createObjectURL(new Blob([text], { type }));
  el("a", { href: address, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(address), 0);
}

/** Let the browser save a chart as a picture. */
export function savePicture(Plotly, traces, layout, filename) {
  return Plotly.downloadImage({ data: traces, layout }, { format: "png", width: WIDTH, height: HEIGHT, scale: SCALE, filename });
}
