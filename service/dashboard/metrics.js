/* A learner's metrics as numbers: large ones at the top, and all in a table, of the window and since the start. */

import { arrange, el, put, write } from "./dom.js";
import {
  between,
  count,
  counted,
  duration,
  metricAt,
  fixed,
  intervalWords,
  NOTHING,
  rate,
  servedOf,
  share,
  short,
  wholeMoment,
} from "./format.js";

/* [pointer, title, format, small print by (metrics)] */
const bound = (metrics, name) => {
  const { value } = metricAt(metrics, `/since_start/${name}`);
  const error = Math.ceil((metrics.since_start[`${name}_error`] ?? 0) * 1e4) / 1e4; // up: it is a bound
  return value === null ? "" : `since start ${value.toFixed(3)}${error > 0 ? ` ± ${error.toFixed(4)}` : ""}`;
};
const since = (metrics, name, format) => {
  const { value } = metricAt(metrics, `/since_start/${name}`);
  return value === null ? "" : `since start ${format(value)}`;
};
const THREE = fixed(3);
const CLASSES = [
  [
    "/window/auc",
    "AUC",
    THREE,
    intervalWords,
    (m) => bound(m, "auc"),
  ],
  ["/window/average_precision", "Average precision", THREE, (m) => bound(m, "average_precision")],
  ["/window/f1", "F1", THREE, (m) => since(m, "f1", THREE)],
  ["/window/precision", "Precision", THREE, (m) => since(m, "precision", THREE)],
  ["/window/recall", "Recall", THREE, (m) => since(m, "recall", THREE)],
  [
    "/threshold",
    "Threshold",
    short,
    (m) => (m.threshold >= 1 ? "so high that there are no alerts now" : "of the probability"),
  ],
  ["/window/alert_rate", "Alert rate", share, (m) => since(m, "alert_rate", share)],
];
const RANKS = [
  ["/window/mae", "Mean absolute error", fixed(4), (m) => since(m, "mae", fixed(4))],
  ["/window/accuracy", "Accuracy", THREE, (m) => since(m, "accuracy", THREE)],
  ["/window/mse", "Mean squared error", fixed(4), (m) => since(m, "mse", fixed(4))],
];
const COMMON = [
  [
    "/events",
    "Events learnt",
    count,
    (m) => (positives(m) === "" ? "" : `${positives(m)} since start`),
    (m) => inWindow(m.window),
  ],
  [
    "/window/label_coverage",
    "Label coverage",
    share,
    (m) => since(m, "label_coverage", share),
    (m) => `${counted(servedOf(m), "event")} served since start`,
  ],
  [
    "/window/label_delay_median",
    "Label delay",
    duration,
    (m) => (m.window.label_delay_p90 === null ? "" : `p90 ${duration(m.window.label_delay_p90)}`),
  ],
];

/** The positives among the events of a window, or since the start; "" where there are no events, or ranks. */
function positives({ class_counts: counts, events }) {
  return Object.hasOwn(counts ?? {}, "positive") && events > 0
    ? `${count(counts.positive)} positive (${share(counts.positive / events)})`
    : "";
}

function inWindow(window) {
  const [events, size] = [window.events, window.size].map(count);
  const text = positives(window);
  if (text === "") return `${events} in the window, at most ${size}`;
  return window.events === window.size
    ? `${text} in the last ${size}`
    : `${text} in the window's ${events}, at most ${size}`;
}

/** The threshold by a learner's document, {value, reason}: none until scores mean something, unless it is fixed. */
export const thresholdOf = ({ ready, not_ready: why, config, threshold }) =>
  threshold !== null && (ready || config.threshold.objective === "fixed")
    ? { value: threshold, reason: null }
    : { value: null, reason: why ?? "not known" };

export class Tiles {
  #metrics = null;

  constructor(ranks) {
    this.definitions = [...(ranks ? RANKS : CLASSES), ...COMMON];
    this.element = el("dl", { class: `tiles panel ${ranks ? "six" : ""}` });
  }

  /** The threshold as it stands: {value, reason}, one of which is null. */
  get threshold() {
    return metricAt(this.#metrics, "/threshold");
  }

  take(metrics) {
    this.#metrics = metrics;
    arrange(
      this.element,
      this.definitions,
      ([pointer]) => pointer,
      ([, title]) => el("div", {}, el("dt", { text: title }), el("dd", {}, el("span"), el("small"), el("small"))),
      (tile, [pointer, , format, ...more]) => {
        const { value, reason } = metricAt(metrics, pointer);
        const [main, first, second] = tile.lastChild.children;
        write(main, value === null ? NOTHING : format(value));
        write(first, value === null ? reason : (more[0]?.(metrics) ?? ""));
        write(second, value === null ? "" : (more[1]?.(metrics) ?? ""));
        put(tile, "data-undefined", value === null);
      },
    );
  }
}

/* name -> [title, format]; what is not here is shown as it is */
const NAMES = {
  events: ["Events", count],
  auc: ["AUC", fixed(4)],
  auc_interval: ["AUC, 95 % interval", (x) => between(x, 4)],
  auc_error: ["AUC, largest error of the sketch", short],
  average_precision: ["Average precision", fixed(4)],
  partial_auc: ["Partial AUC", fixed(4)],
  ks: ["Kolmogorov–Smirnov", fixed(4)],
  recall_at_fpr: ["Recall at a false positive rate", fixed(4)],
  precision_at_k: ["Precision among the highest scores", fixed(4)],
  f1: ["F1", fixed(4)],
  fbeta: ["F-beta", fixed(4)],
  precision: ["Precision", fixed(4)],
  recall: ["Recall", fixed(4)],
  fpr: ["False positive rate", share],
  accuracy: ["Accuracy", fixed(4)],
  mcc: ["Matthews correlation", fixed(4)],
  alert_rate: ["Alert rate", share],
  brier: ["Brier score", short],
  log_loss: ["Log loss", short],
  calibration_error: ["Calibration error", short],
  label_delay_median: ["Label delay, median", duration],
  label_delay_p90: ["Label delay, p90", duration],
  label_coverage: ["Label coverage", share],
  events_per_second: ["Events per second, by their times", rate],
  mae: ["Mean absolute error", fixed(4)],
  mse: ["Mean squared error", fixed(4)],
};

/** What a metric is called: with the setting that it depends on, where the learner's settings are known. */
function titleOf(name, settings) {
  const title = NAMES[name][0];
  if (settings === null) return title;
  const { beta, max_fpr: most, k } = settings;
  const largest = share(most).replace(" ", "\u00a0");
  const titles = {
    partial_auc: `${title} up to a false positive rate of ${largest}`,
    recall_at_fpr: `${title} of ${largest}`,
    precision_at_k: `Precision among the ${counted(k, "highest score")}`,
    fbeta: `${title}, beta ${short(beta)}`,
  };
  return titles[name] ?? title;
}

export class MetricTable {
  #settings = null;
  #body = el("tbody");
  #note = el("p", { class: "quiet" });

  constructor(ranks) {
    this.ranks = ranks;
    this.element = el(
      "details",
      { class: "panel figures" },
      el("summary", { text: "All metrics as a table" }),
      this.#note,
      el(
        "div",
        { class: "scrolls", tabindex: "0", role: "group", "aria-label": "All figures" },
        el(
          "table",
          {},
          el(
            "thead",
            {},
            el(
              "tr",
              {},
              ["Figure", "In the window", "Since the start"].map((text) => el("th", { scope: "col", text })),
            ),
          ),
          this.#body,
        ),
      ),
    );
  }

  /** The learner's document. */
  about({ config }) {
    this.#settings = config.figures;
  }

  take(metrics) {
    const names = Object.keys(NAMES).filter((name) => name in metrics.window || name in metrics.since_start);
    arrange(
      this.#body,
      names,
      (name) => name,
      () => el("tr", {}, el("th", { scope: "row" }), el("td"), el("td")),
      (row, name) => {
        write(row.cells[0], titleOf(name, this.#settings));
        ["window", "since_start"].forEach((scope, i) => {
          const cell = row.cells[i + 1];
          const { value, reason } = metricAt(metrics, `/${scope}/${name}`);
          const absent = !(name in metrics[scope]);
          write(cell, absent ? "" : value === null ? `${NOTHING} ${reason}` : NAMES[name][1](value));
          put(cell, "class", !absent && value === null ? "quiet" : null);
        });
      },
    );
    const { clock, duplicates, corrections, served } = metrics;
    write(
      this.#note,
      [
        clock === null ? "The events have no times." : `The learner's clock is at ${wholeMoment(clock)}.`,
        `${counted(duplicates, "duplicate")}, ${counted(corrections, "corrected label")}.`,
        `${counted(servedOf(metrics), "event")} served` +
          (Number.isFinite(served.labelled) ? `, ${count(served.labelled)} of them labelled.` : "."),
      ].join(" "),
    );
  }
}
