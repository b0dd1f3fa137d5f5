/* Which charts show a learner's metrics over time, and what is in each. */

import { duration, fixed, rate, share, short } from "./format.js";

const FINE = fixed(3);

/* What is drawn: each line is {column or of(point), text, number, dash?, since?}; `since` names the metric whose trend
 * since the start, by the points' since_start_ columns, is a dotted line beside it. `none` tells by the metrics why there
 * is nothing to draw, or null. */
const CLASSES = [
  {
    name: "ranking",
    title: "Ranking",
    wide: true,
    note: "in the window, with the AUC's 95 % interval",
    write: FINE,
    least: 0.05,
    band: ["auc_low", "auc_high"],
    lines: [
      { column: "auc", text: "AUC", number: 0, since: "auc" },
      { column: "average_precision", text: "average precision", number: 1, dash: "dash", since: "average_precision" },
    ],
  },
  {
    name: "decisions",
    title: "Decisions",
    note: "in the window",
    write: FINE,
    floor: 0,
    lines: [
      { column: "f1", text: "F1", number: 0, since: "f1" },
      { column: "precision", text: "precision", number: 1, dash: "dash", since: "precision" },
      { column: "recall", text: "recall", number: 2, dash: "dashdot", since: "recall" },
    ],
  },
  {
    name: "threshold",
    title: "Threshold",
    note: "of the probability",
    none: ({ threshold, undefined: reasons }) => (threshold === null ? (reasons["/threshold"] ?? "none yet") : null),
    write: short,
    floor: 0,
    lines: [{ column: "threshold", text: "threshold", number: 0 }],
  },
  {
    name: "positives",
    title: "Positives and alerts",
    note: "share of the window's events",
    write: share,
    percent: true,
    floor: 0,
    lines: [
      { of: (point, size) => point.positives / Math.min(size, point.events || 1), text: "positive", number: 1 },
      { column: "alert_rate", text: "alerts", number: 0, dash: "dash", since: "alert_rate" },
      { column: "served_alert_rate", text: "alerts among served", number: 2, dash: "dot" },
    ],
  },
];
const RANKS = [
  {
    name: "error",
    title: "Error",
    note: "in the window, in ranks",
    wide: true,
    write: FINE,
    floor: 0,
    lines: [{ column: "mae", text: "mean absolute error", number: 0, since: "mae" }],
  },
  {
    name: "accuracy",
    title: "Accuracy",
    note: "in the window",
    write: FINE,
    lines: [{ column: "accuracy", text: "accuracy", number: 0, since: "accuracy" }],
  },
];
const COMMON = [
  {
    name: "rate",
    title: "Events per second",
    note: "by the events' own times",
    write: rate,
    floor: 0,
    lines: [{ column: "events_per_second", text: "events per second", number: 0 }],
  },
  {
    name: "coverage",
    title: "Label coverage",
    note: "share of served events",
    write: share,
    percent: true,
    floor: 0,
    lines: [{ column: "label_coverage", text: "label coverage", number: 0, since: "label_coverage" }],
  },
  {
    name: "delay",
    title: "Label delay",
    note: "from an event to its label",
    write: duration,
    floor: 0,
    seconds: true,
    lines: [
      { column: "label_delay_median", text: "median", number: 0 },
      { column: "label_delay_p90", text: "p90", number: 1, dash: "dash" },
    ],
  },
];

/** The charts of an ordinal learner (`ranks`), or of one of two classes. */
export const chartsOf = (ranks) => [...(ranks ? RANKS : CLASSES), ...COMMON];
