/* A learner's metrics over time: charts that share an axis, alarms and annotations on it, and the part that is shown. */

import { rangeOf } from "./address.js";
import { Chart, colour, drawnAs, line, veil, widened } from "./charts.js";
import { el } from "./dom.js";
import { ALARMS, annotationWords } from "./alarm_words.js";
import { counted, local, NOTHING, servedOf, unitOf } from "./format.js";
import { chartsOf } from "./history_charts.js";
import { RangeFields } from "./range.js";

const SINCE = "since the start";
const SIGNS = 12; // marks with a sign above their line
const LONGEST = 120; // characters of a mark's text

/** Text as Plotly shows it, which reads tags and entities. */
const plain = (text) =>
  (text.length > LONGEST ? `${text.slice(0, LONGEST)} …` : text)
    .replaceAll("&", "&amp;")
    .replaceAll("<", "&lt;")
    .replace(/\s+/g, " ");

/* The key of a chart: of more than two trends since the start one entry tells of all, as each has its line's colour. */
function entriesOf(lines) {
  const trends = lines.filter(({ since }) => since);
  if (lines.length === 1 && trends.length === 0) return [];
  const all = trends.length > 2 ? [{ text: SINCE, number: trends[0].number, dash: "dot" }] : [];
  return lines
    .flatMap(({ text, number, dash, since }) => [
      { text, number, dash },
      ...(since && all.length === 0 ? [{ text: `${text} ${SINCE}`, number, dash: "dot" }] : []),
    ])
    .concat(all);
}

export class Histories {
  #charts;
  #points = [];
  #alarms = [];
  #annotations = [];
  #metrics = null;
  #by = null;
  #offersTime = null; // as an axis; null: no axis can be chosen yet
  #place;
  #size;
  #axis = el("select", { name: "by", on: { change: () => this.#turn(this.#axis.value) } });

  /** `size` is that of the window; `place` keeps the range and the axis in the address. */
  constructor(ranks, size, place, signal) {
    this.#size = size;
    this.#place = place;
    this.fields = new RangeFields(
      place.query,
      (bounds) => {
        place.keep(bounds);
        this.draw();
      },
      el("label", {}, "Axis ", this.#axis),
    );
    this.#charts = chartsOf(ranks).map((kind) => ({
      kind,
      chart: new Chart({
        name: kind.name,
        title: kind.title,
        note: kind.note,
        signal,
        names: kind.wide ? "wide" : "",
        entries: entriesOf(kind.lines),
        onRange: (range) => this.fields.choose(range),
      }),
    }));
    this.element = el(
      "div",
      { class: `charts ${ranks ? "six" : ""}` },
      this.#charts.map(({ chart }) => chart.element),
    );
  }

  /** All points anew, and the axis that the server takes for the usual one: time, if there is any between them. */
  take(points, usual) {
    this.#points = points;
    const clocks = points.map(({ clock }) => clock).filter((clock) => clock !== null);
    const by = usual === "clock" && clocks.length > 1 && clocks[0] === clocks.at(-1) ? "events" : usual;
    const axis = this.#place.query.get("by");
    this.#by = axis === "events" || (axis === "clock" && by === "clock") ? axis : by;
    if (this.#offersTime !== (by === "clock")) this.#offer(by === "clock"); // at first, and where the first time came
    this.draw();
  }

  add(point) {
    const before = this.#points.at(-1);
    if (before !== undefined && before.events + before.served >= point.events + point.served) return;
    this.#points.push(point);
    if (this.#by === "events" && point.clock !== null && this.#points.length === 1) this.take(this.#points, "clock");
    this.draw();
  }

  figures(metrics) {
    this.#metrics = metrics;
    this.draw();
  }

  /** Draw these on the axis, but for fits, which are many. */
  mark(alarms, annotations) {
    this.#alarms = alarms;
    this.#annotations = annotations.filter(({ kind }) => kind !== "fit");
    this.draw();
  }

  /** The place of a point, or an alarm, on the axis. */
  #at = (point) => (this.#by === "clock" ? (point.clock === null ? null : local(point.clock)) : point.events);

  draw() {
    if (this.#by !== null) this.fields.showUnread(this.#places());
    for (const { kind, chart } of this.#charts) chart.draw(() => this.#specified(kind));
  }

  /** The points, and the present metrics behind them where those are newer. */
  #all() {
    const points = this.#points;
    if (this.#metrics === null || this.#metrics.events + servedOf(this.#metrics) === 0) return points;
    const { window, since_start, events, clock, threshold } = this.#metrics;
    const served = servedOf(this.#metrics);
    const last = points.at(-1);
    if (last !== undefined && last.events + last.served >= events + served) return points;
    const [low, high] = window.auc_interval ?? [null, null];
    const now = {
      ...window,
      ...Object.fromEntries(Object.entries(since_start).map(([name, value]) => [`since_start_${name}`, value])),
      events,
      served,
      clock,
      threshold,
      auc_low: low,
      auc_high: high,
      positives: window.class_counts?.positive,
      served_alert_rate: null,
    };
    return [...points, now];
  }

  #specified(kind) {
    const none = this.#metrics === null ? null : (kind.none?.(this.#metrics) ?? null);
    if (none !== null) return { nothing: `Nothing to draw: ${none}.` };
    const points = this.#all();
    const valueOf = ({ column, of }) => (of ? (point) => of(point, this.#size) : (point) => point[column] ?? null);
    const visible = kind.lines.filter((series) => points.some((point) => Number.isFinite(valueOf(series)(point))));
    if (visible.length === 0) return { nothing: this.#why(kind, points) };
    const x = points.map(this.#at);
    const traces = [];
    const [unit, unitSize] = kind.seconds
      ? unitOf(Math.max(...visible.flatMap((series) => points.map(valueOf(series)))))
      : [null, 1];
    if (kind.band) traces.push(...this.#band(kind.band, points, x));
    const words = [];
    for (const series of visible) {
      const trends = [{ text: series.text, value: valueOf(series), look: line(series.number, series.dash) }];
      if (series.since) {
        const value = (point) => point[`since_start_${series.since}`] ?? null;
        trends.push({ text: `${series.text} ${SINCE}`, value, look: line(series.number, "dot", 1.5) });
      }
      for (const { text, value, look } of trends) {
        const y = points.map(value);
        const last = y.findLast((number) => number !== null);
        if (last === undefined) continue;
        words.push(`${text} ${kind.write(last)}`);
        traces.push({
          name: text,
          x,
          y: y.map((number) => (number === null ? null : number / unitSize)),
          ...drawnAs(y),
          line: look,
          customdata: y.map((number) => (number === null ? NOTHING : kind.write(number))),
          hovertemplate: "%{customdata}",
        });
      }
    }
    const marks = this.#marks();
    for (const thing of ["drift alarm", "annotation"]) {
      const n = marks.filter((mark) => mark.thing === thing).length;
      if (n > 0) words.push(counted(n, thing));
    }
    const others = kind.lines.filter((series) => !visible.includes(series));
    const absent = others.flatMap(({ text }) => [text, `${text} ${SINCE}`]);
    return { traces, layout: this.#layout(kind, traces, marks, unit), words: `Now: ${words.join(", ")}.`, absent };
  }

  /** What stands on the axis besides points: {thing, x, look, sign, text}. */
  #marks() {
    const quiet = { color: colour("--quiet"), width: 1, dash: "dot" };
    const alarms = this.#alarms.map((alarm) => {
      const { name, dash } = ALARMS[alarm.kind];
      const color = colour(alarm.state === "resolved" ? "--quiet" : "--bad");
      const text = `drift: ${name}, ${alarm.state}`;
      return { thing: "drift alarm", x: this.#at(alarm), look: { color, width: 1.5, dash }, sign: "▼", text };
    });
    const annotations = this.#annotations.map((entry) => {
      const text = plain(annotationWords(entry));
      return { thing: "annotation", x: this.#at(entry), look: quiet, sign: "◆", text };
    });
    return [...annotations, ...alarms].filter(({ x }) => x !== null);
  }

  /** The interval, stretch by stretch: where it is null nothing is drawn. */
  #band([low, high], points, x) {
    const stretches = [];
    points.forEach((point, i) => {
      if (!Number.isFinite(point[low]) || x[i] === null) return;
      if (i > 0 && stretches.at(-1)?.at(-1) === i - 1) stretches.at(-1).push(i);
      else stretches.push([i]);
    });
    const shade = veil("--line-0", 0.16);
    const quiet = { mode: "lines", hoverinfo: "skip" };
    return stretches.flatMap((places) => {
      const at = (key) => places.map((i) => points[i][key]);
      if (places.length === 1) {
        const [i] = places;
        return [{ ...quiet, line: { color: shade, width: 8 }, x: [x[i], x[i]], y: [...at(low), ...at(high)] }];
      }
      const edge = { ...quiet, line: { width: 0 }, x: places.map((i) => x[i]) };
      return [
        { ...edge, y: at(low) },
        { ...edge, y: at(high), fill: "tonexty", fillcolor: shade },
      ];
    });
  }

  /** Where on the axis something is. */
  #places() {
    return this.#all()
      .map((point) => (this.#by === "clock" ? point.clock : point.events))
      .filter((place) => place !== null);
  }

  /** The range of the axis as Plotly takes it: `chosen` by the reader, or where points are too near; null: all. */
  #range() {
    const clocked = this.#by === "clock";
    const places = this.#places();
    const ends = (range) => range?.map((place) => (clocked ? local(place) : place)) ?? null;
    const selection = ends(rangeOf(this.#place.query, this.#by, places));
    return { selection, range: selection ?? ends(widened(places, this.#by)) };
  }

  #layout(kind, traces, marks, unit) {
    const { selection, range } = this.#range();
    const within = (x) => selection === null || (selection[0] <= x && x <= selection[1]);
    const values = traces.flatMap(({ x, y }) => y.filter((value, i) => Number.isFinite(value) && within(x[i])));
    if (values.length === 0) values.push(0, 1);
    let [low, high] = [Math.min(...values), Math.max(...values)];
    const least = kind.least ?? (low === 0 && high === 0 ? 0.1 : 0); // else an axis of billionths, where all are 0
    const room = Math.max(0.06 * (high - low), least / 2, 1e-9 + Math.abs(high) * 0.02);
    [low, high] = [kind.floor ?? low - room, high + room];
    return {
      xaxis: {
        fixedrange: false,
        range: range ?? undefined,
        autorange: range === null,
        type: this.#by === "clock" ? "date" : "linear",
        title: this.#by === "clock" ? "" : "labelled events",
        ...(this.#by === "clock" ? {} : { tickformat: "," }),
      },
      yaxis: {
        range: [low, high],
        ...(kind.percent ? { tickformat: ".3~p" } : {}),
        ...(unit === null ? {} : { ticksuffix: ` ${unit}` }),
      },
      shapes: marks.map(({ x, look }) => ({
        type: "line",
        xref: "x",
        yref: "paper",
        x0: x,
        x1: x,
        y0: 0,
        y1: 1,
        layer: "below",
        line: look,
      })),
      annotations: marks.slice(-SIGNS).map(({ x, look, sign, text }) => ({
        x,
        xref: "x",
        y: 1,
        yref: "paper",
        yanchor: "bottom",
        showarrow: false,
        text: sign,
        font: { color: look.color, size: 11 },
        hovertext: text,
      })),
      uirevision: JSON.stringify(selection), // a zoom outlives new points
    };
  }

  #why(kind, points) {
    const reasons = kind.lines.map(({ column }) => this.#metrics?.undefined[`/window/${column}`]).filter(Boolean);
    if (reasons.length > 0) return `Nothing to draw: ${reasons[0]}.`;
    return points.length === 0 ? "Nothing to draw: no events yet." : "Nothing to draw yet.";
  }

  /* ---- The part that is shown ---- */

  #offer(clocked) {
    this.#offersTime = clocked;
    const axes = [
      clocked ? el("option", { value: "clock", text: "time" }) : null,
      el("option", { value: "events", text: "labelled events" }),
    ];
    this.#axis.replaceChildren(...axes.filter((axis) => axis !== null));
    this.#axis.value = this.#by;
    this.fields.show(this.#by);
  }

  #turn(by) {
    this.#by = by;
    this.#place.keep({ by, from: null, to: null });
    this.fields.show(by);
    this.draw();
  }
}
