/* Charts by Plotly, whose bundle is loaded beside the first metrics and only on pages that have charts.
 *
 * A chart is drawn while it is in sight, at most so often; what it says in words, or why there is nothing to draw, is
 * as it is at present anywhere on the page. Plotly reads
 * labels as a little HTML of its own: what comes from users goes through `plain`.
 */

import { csvOf, saveText, savePicture } from "./chart_files.js";
import { el, put, svg, write } from "./dom.js";

const LEAST = 500; // milliseconds from one drawing of a chart to the next
const ENDED = -1; // in the place of the timer: nothing is drawn any more
const charts = new Set();
let library = null;

/** Plotly, once it has loaded. */
function plotly() {
  library ??= new Promise((resolve, reject) => {
    const script = el("script", { src: document.body.dataset.plotly });
    script.onload = () => resolve(globalThis.Plotly);
    script.onerror = () => {
      library = null;
      script.remove();
      reject(new Error("the chart library could not be loaded"));
    };
    document.head.append(script);
  });
  return library;
}

export const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const LEAST_SPAN = { clock: 100, events: 10 }; // seconds, events

/** The range of an axis by "clock" (places in seconds) or by "events" whose places are so near to each other that it
 * would count milliseconds, or parts of events; null where they are not: it is as long as they need. */
export function widened(places, by) {
  const least = LEAST_SPAN[by];
  const [first, last] = [Math.min(...places), Math.max(...places)];
  if (places.length === 0 || last - first >= least) return null;
  const low = by === "events" ? Math.max(0, (first + last - least) / 2) : (first + last - least) / 2;
  return [low, low + least];
}

/** The place that an end of Plotly's range is at: in seconds by the clock (it gives local times), else in events. */
export const placeOf = (end, clocked) =>
  Math.round(clocked ? new Date(String(end).replace(" ", "T")).getTime() / 1000 : Number(end));

/** How a line with gaps is drawn: a value between two gaps, which no line reaches, as a point. */
export function drawnAs(values) {
  const present = values.map((value) => Number.isFinite(value));
  const alone = present.map((value, i) => value && !present[i - 1] && !present[i + 1]);
  if (present.filter(Boolean).length < 3) return { mode: "lines+markers" };
  return alone.includes(true)
    ? { mode: "lines+markers", marker: { size: alone.map((point) => (point ? 6 : 0)) } }
    : { mode: "lines" };
}

/** A colour of the style sheet, as it is in the present theme. */
export const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

/** A colour of the style sheet, thinned. */
export const veil = (name, opacity) =>
  `${colour(name)}${Math.round(255 * opacity)
    .toString(16)
    .padStart(2, "0")}`;

/** A line: its number names the colour --line-N; `dash` solid, dash, dot or dashdot. */
export const line = (number, dash = "solid", width = 2) => ({ color: colour(`--line-${number}`), dash, width });

/** A key to a chart's lines and marks: [{text, number, dash}]; the `dash` of a mark is "mark". */
export function legend(entries) {
  return el(
    "ul",
    { class: "legend" },
    entries.map(({ text, number, dash = "solid" }) => el("li", {}, swatch(number, dash), el("span", { text }))),
  );
}

const swatch = (number, dash) =>
  svg(
    "svg",
    { class: "swatch", viewBox: "0 0 24 8", "aria-hidden": "true", data: { line: number, dash } },
    dash === "mark" ? svg("path", { d: "M12 0l4 4-4 4-4-4z" }) : svg("line", { x1: 0, y1: 4, x2: 24, y2: 4 }),
  );

/** A chart with its title and key. `draw` it with a function that gives {traces, layout, words} or {nothing}; a `note`
 * in what it gives stands in place of the usual one, and of its key the entries whose texts are `absent` are hidden. */
export class Chart {
  #specify = null;
  #seen = false;
  #last = 0;
  #timer = 0;
  #listens = false;
  #stale = false; // there is something that the drawing under way does not show
  #observer;

  constructor({ name, title, note = null, entries = [], signal, names = "", onRange = null }) {
    this.onRange = onRange;
    this.usual = note ?? "";
    this.note = el("span", { class: "note", text: this.usual });
    this.nothing = el("p", { class: "nothing", hidden: true });
    this.plot = el("div", { class: "plot", role: "img", "aria-label": title });
    this.words = el("p", { class: "unseen" });
    this.name = name;
    const saver = (form, save) =>
      el("button", { type: "button", class: "link", text: form, "aria-label": `Save ${title} as ${form}`, on: { click: save } });
    this.files = el(
      "span",
      { class: "files" },
      saver("CSV", () => this.#saveValues()),
      saver("PNG", () => this.#savePicture()),
    );
    this.element = el(
      "figure",
      { class: `panel chart ${names}`, data: { chart: name } },
      el(
        "figcaption",
        {},
        el("h3", { text: title }),
        this.note,
        this.files,
        entries.length > 0 ? legend(entries) : null,
      ),
      this.plot,
      this.nothing,
    );
    this.title = title;
    this.#observer = new IntersectionObserver(
      (entries) => {
        this.#seen = entries.at(-1).isIntersecting;
        if (this.#seen) this.#soon();
      },
      { rootMargin: "200px" },
    );
    this.#observer.observe(this.element);
    charts.add(this);
    signal.addEventListener("abort", () => this.#end());
  }

  /** Say what `specify` gives, and draw it now or when the chart comes into sight. */
  draw(specify) {
    this.#specify = specify;
    this.#stale = true;
    this.#soon();
  }

  /** Draw the same again: the theme has changed. */
  again() {
    this.#stale = true;
    this.#soon();
  }

  #soon() {
    if (this.#specify === null || this.#timer !== 0) return;
    this.#timer = setTimeout(() => this.#now(), Math.max(0, this.#last + LEAST - performance.now()));
  }

  async #now() {
    this.#stale = false;
    const { traces = [], layout = {}, words = "", nothing = null, note = this.usual, absent = [] } = this.#specify();
    write(this.note, note);
    this.nothing.hidden = nothing === null;
    this.plot.hidden = this.files.hidden = nothing !== null;
    for (const key of this.element.querySelectorAll(".legend")) {
      key.hidden = nothing !== null;
      for (const entry of key.children) entry.hidden = absent.includes(entry.textContent);
    }
    put(this.plot, "aria-label", `${this.title}. ${words}`);
    try {
      if (nothing !== null) {
        write(this.nothing, nothing);
      } else if (this.#seen) {
        const Plotly = await plotly();
        if (this.element.isConnected) {
          await Plotly.react(this.plot, traces, complete(layout, this.plot.clientWidth), {
            displayModeBar: false,
            responsive: true,
          });
          this.#listen();
        }
      }
    } catch (error) {
      this.plot.hidden = true;
      this.nothing.hidden = false;
      write(this.nothing, `No chart: ${error.message}; reload the page to try again.`);
    }
    if (this.#timer === ENDED) return;
    this.#last = performance.now();
    this.#timer = 0;
    if (this.#stale) this.#soon();
  }

  #saveValues() {
    const { traces = [], layout = {} } = this.#specify();
    saveText(csvOf(traces, layout.xaxis), `${this.name}.csv`, "text/csv");
  }

  async #savePicture() {
    const { traces = [], layout = {} } = this.#specify();
    const look = { paper_bgcolor: colour("--panel"), title: { text: this.title }, margin: { l: 8, r: 12, t: 48, b: 8 } };
    const picture = { ...complete(layout, this.plot.clientWidth), showlegend: true, ...look };
    await savePicture(await plotly(), traces, picture, this.name);
  }

  /** A zoom by the reader, to tell it to the other charts. */
  #listen() {
    if (this.#listens || this.onRange === null) return;
    this.#listens = true;
    this.plot.on("plotly_relayout", (change) => {
      if (change["xaxis.autorange"]) this.onRange(null);
      else if (change["xaxis.range[0]"] !== undefined)
        this.onRange([change["xaxis.range[0]"], change["xaxis.range[1]"]]);
    });
  }

  #end() {
    clearTimeout(this.#timer);
    this.#timer = ENDED;
    this.#observer.disconnect();
    charts.delete(this);
    globalThis.Plotly?.purge(this.plot);
  }
}

/** The layout with what all charts have in common. */
function complete({ xaxis = {}, yaxis = {}, ...layout }, width) {
  const rule = colour("--rule");
  const quiet = colour("--quiet");
  const family = getComputedStyle(document.body).fontFamily;
  const axis = {
    gridcolor: rule,
    linecolor: rule,
    zerolinecolor: rule,
    automargin: true,
    nticks: 6,
    fixedrange: true,
    tickangle: 0,
  };
  const titled = ({ title, ...rest }) => ({
    ...axis,
    ...rest,
    ...(title ? { title: { text: title, font: { size: 12 } } } : {}),
  });
  return {
    showlegend: false,
    margin: { l: 8, r: 12, t: 10, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family, size: 12, color: quiet },
    hovermode: "x unified",
    hoverlabel: { bgcolor: colour("--panel"), bordercolor: quiet, font: { family, color: colour("--text") } },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
    ...layout,
    xaxis: titled({
      spikecolor: quiet,
      spikethickness: 1,
      // of dates four at least: where days are too many for the ticks, Plotly takes months, and a month has one
      nticks: xaxis.type === "date" ? Math.max(4, Math.floor(width / 90)) : Math.max(3, Math.floor(width / 55)),
      ...xaxis,
    }),
    yaxis: titled(yaxis),
  };
}

matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const chart of charts) chart.again();
});
