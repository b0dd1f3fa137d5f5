/* The window's curves: ROC, precision by recall, scores by class, reliability, and the confusion matrix. */

import { Chart, colour, line, veil } from "./charts.js";
import { el, put, write } from "./dom.js";
import { count, counted, fixed, share, short, timeOfDay } from "./format.js";

const SQUARE = { range: [-0.02, 1.02] };

export class Curves {
  constructor(signal) {
    const chart = (name, title, note, entries = []) => new Chart({ name, title, note, entries, signal });
    const live = { text: "live decisions", number: 1, dash: "mark" };
    this.roc = chart("roc", "ROC", "recall by false positive rate", [{ text: "every threshold", number: 0 }, live]);
    this.pr = chart("precision-recall", "Precision and recall", null, [{ text: "every threshold", number: 0 }, live]);
    this.scores = chart("scores", "Scores by class", "share of each class", [
      { text: "negative", number: 0 },
      { text: "positive", number: 1 },
      { text: "alerts begin", number: 5, dash: "dash" },
    ]);
    this.reliability = chart("calibration", "Calibration", "predicted vs. observed", [
      { text: "share that is positive", number: 0 },
      { text: "perfect calibration", number: 5, dash: "dot" },
    ]);
    this.confusion = new Confusion();
    this.element = el(
      "div",
      { class: "charts four" },
      this.roc.element,
      this.pr.element,
      this.scores.element,
      this.reliability.element,
    );
  }

  /** The document of the curves, and the threshold as it stands: {value, reason}, one of which is null. */
  take(curves, threshold) {
    const {
      operating_point: at,
      confusion: { tp, fp, tn, fn },
    } = curves;
    const none = tp + fn === 0 ? "no positives" : tn + fp === 0 ? "no negatives" : null;
    const nothing = none && `Nothing to draw: ${none} in the window yet.`;
    const mark = (x, y, text) => ({
      x: [x],
      y: [y],
      name: "live decisions",
      mode: "markers",
      cliponaxis: false, // it is whole at an edge, too
      hovertemplate: `${text}<extra></extra>`,
      marker: { color: colour("--line-1"), size: 13, symbol: "diamond", line: { color: colour("--panel"), width: 2 } },
    });
    const rates = `recall ${share(at.tpr ?? 0)}, false positive rate ${share(at.fpr ?? 0)}`;
    this.roc.draw(() =>
      nothing
        ? { nothing }
        : {
            traces: [
              { x: [0, 1], y: [0, 1], mode: "lines", line: line(5, "dot", 1), hoverinfo: "skip" },
              {
                x: curves.roc.fpr,
                y: curves.roc.tpr,
                mode: "lines",
                line: line(0),
                customdata: curves.roc.threshold,
                hovertemplate: "score %{customdata:.3~g}: recall %{y:.3f}, false positive rate %{x:.3f}<extra></extra>",
              },
              mark(at.fpr, at.tpr, rates),
            ],
            layout: {
              hovermode: "closest",
              xaxis: { ...SQUARE, title: "false positive rate" },
              yaxis: { ...SQUARE, title: "recall" },
            },
            words: `The live decisions: ${rates}.`,
          },
    );
    const precision = at.precision === null ? "no alerts, so no precision" : `precision ${share(at.precision)}`;
    this.pr.draw(() =>
      nothing
        ? { nothing }
        : {
            traces: [
              {
                x: curves.precision_recall.recall,
                y: curves.precision_recall.precision,
                mode: curves.precision_recall.recall.length < 3 ? "lines+markers" : "lines",
                line: line(0),
                customdata: curves.precision_recall.threshold,
                hovertemplate: "score %{customdata:.3~g}: precision %{y:.3f}, recall %{x:.3f}<extra></extra>",
              },
              ...(at.precision === null ? [] : [mark(at.tpr, at.precision, `${precision}, recall ${share(at.tpr)}`)]),
            ],
            layout: {
              hovermode: "closest",
              xaxis: { ...SQUARE, title: "recall" },
              yaxis: { ...SQUARE, title: "precision" },
            },
            words: `The live decisions: ${precision}, recall ${share(at.tpr ?? 0)}.`,
          },
    );
    this.scores.draw(() => this.#histogram(curves, threshold));
    this.reliability.draw(() => this.#reliable(curves.reliability));
    this.confusion.classes(curves.confusion);
  }

  #histogram({ histogram: { edges, negative, positive }, score_threshold: alerts }, { value, reason }) {
    if (edges.length === 0) return { nothing: "Nothing to draw: no events in the window yet." };
    const sum = (counts) => counts.reduce((a, b) => a + b, 0);
    const middles = edges.slice(1).map((edge, i) => (edge + edges[i]) / 2);
    const step = (counts, name, number) => {
      const all = sum(counts) || 1;
      const whole = [counts[0], ...counts, counts.at(-1)]; // the first bin from its edge, the last one to its end
      return {
        type: "scatter",
        name,
        x: [edges[0], ...middles, edges.at(-1)],
        y: whole.map((n) => n / all),
        mode: "lines",
        fill: "tozeroy",
        line: { ...line(number), shape: "hvh" },
        fillcolor: veil(`--line-${number}`, 0.22),
        customdata: whole,
        hovertemplate: "%{customdata:,} (%{y:.1%})",
      };
    };
    const begins = value !== null && Number.isFinite(alerts);
    const where =
      value === null
        ? `No threshold: ${reason}.`
        : `${begins ? `Alerts begin at a score of ${short(alerts)}` : "No score parts alerts from the rest"}, ` +
          `a probability of ${short(value)}.`;
    return {
      ...(value === null ? { note: `share of each class; no threshold: ${reason}` } : {}),
      traces: [
        sum(negative) > 0 ? step(negative, "negative", 0) : null,
        sum(positive) > 0 ? step(positive, "positive", 1) : null,
      ].filter((trace) => trace !== null),
      layout: {
        xaxis: { title: "score" },
        yaxis: { tickformat: ".3~p", rangemode: "tozero" },
        shapes: begins
          ? [{ type: "line", yref: "paper", x0: alerts, x1: alerts, y0: 0, y1: 1, line: line(5, "dash", 1.5) }]
          : [],
      },
      words: `${counted(sum(negative), "negative")} and ${counted(sum(positive), "positive")}. ${where}`,
    };
  }

  #reliable({ count: events, mean_probability: predicted, share_positive: observed }) {
    const all = events.reduce((a, b) => a + b, 0);
    if (all === 0) return { nothing: "Nothing to draw: no events in the window yet." };
    const filled = events.map((_, i) => i).filter((i) => events[i] > 0);
    const top = Math.max(...filled.map((i) => Math.max(predicted[i], observed[i])));
    const end = Math.min(1, top * 1.1 + 0.01);
    return {
      traces: [
        { x: [0, end], y: [0, end], mode: "lines", line: line(5, "dot", 1), hoverinfo: "skip" },
        {
          // bins of few events are as small as what they say
          x: filled.map((i) => predicted[i]),
          y: filled.map((i) => observed[i]),
          mode: "lines+markers",
          line: { color: veil("--line-0", 0.45), width: 1 },
          marker: { color: colour("--line-0"), size: filled.map((i) => 6 + 2 * Math.log10(events[i])), opacity: 1 },
          customdata: filled.map((i) => counted(events[i], "event")),
          hovertemplate: "predicted %{x:.1%}, observed %{y:.1%}, of %{customdata}<extra></extra>",
        },
      ],
      layout: {
        hovermode: "closest",
        xaxis: { title: "predicted probability", tickformat: ".3~p", range: [-0.02 * end, end] },
        yaxis: { tickformat: ".3~p", rangemode: "tozero" },
      },
      words: filled.map((i) => `Predicted ${share(predicted[i])}, observed ${share(observed[i])} of ${count(events[i])}.`).join(" "),
    };
  }
}

/** Decisions against labels, or predicted against true ranks: the darker a cell, the larger its part of the row. */
export class Confusion {
  #table = el("table", {}, el("caption"), el("thead"), el("tbody"));

  constructor(title = "Confusion matrix", names = "panel confusion") {
    // it scrolls where there are many ranks: focusable, so that keys do that too
    this.element = el(
      "section",
      { class: names },
      el("h3", { text: title }),
      el("div", { class: "scrolls", tabindex: "0", role: "group", "aria-label": title }, this.#table),
    );
  }

  classes({ tp, fp, tn, fn }, caption = null) {
    this.#fill(
      caption ?? `Events of the window at ${timeOfDay(new Date())}: truth by row, decision by column; shares of each row`,
      ["no alert", "alert"],
      ["negative", "positive"],
      [
        [tn, fp],
        [fn, tp],
      ],
    );
  }

  ranks(counts) {
    const names = counts.map((_, i) => String(i + 1));
    this.#fill(`Events of the window at ${timeOfDay(new Date())}: true rank by row, predicted by column`, names, names, counts);
  }

  #fill(caption, columns, rows, counts) {
    const table = this.#table;
    write(table.caption, caption);
    if (table.tBodies[0].rows.length !== rows.length) {
      table.style.setProperty("--ranks", String(rows.length));
      table.tHead.replaceChildren(
        el(
          "tr",
          {},
          el("td"),
          columns.map((text) => el("th", { scope: "col", text })),
        ),
      );
      table.tBodies[0].replaceChildren(
        ...rows.map((text) =>
          el(
            "tr",
            {},
            el("th", { scope: "row", text }),
            columns.map(() => el("td", {}, el("span"), el("small"))),
          ),
        ),
      );
    }
    counts.forEach((row, i) => {
      const all = row.reduce((sum, n) => sum + n, 0);
      row.forEach((n, k) => {
        const cell = table.tBodies[0].rows[i].cells[k + 1];
        const [number, part] = cell.children;
        write(number, count(n));
        write(part, rows.length === 2 && all > 0 ? `${fixed(1)((100 * n) / all)} %` : "");
        put(cell, "class", [i === k ? "right" : "", n === 0 ? "none" : ""].join(" ").trim() || null);
        cell.style.setProperty("--share", all > 0 ? (n / all).toFixed(3) : "0");
      });
    });
  }
}
