/* Alarms and annotations in words. */

import { count, counted, fixed, share } from "./format.js";

export const ALARMS = {
  auc: {
    name: "AUC",
    dash: "dash",
    brief: (before, after) => `AUC ${before.toFixed(2)} → ${after.toFixed(2)}`,
    words: (before, after) => `the AUC fell from ${fixed(3)(before)} to ${fixed(3)(after)}`,
  },
  scores: {
    name: "scores",
    dash: "dot",
    brief: () => "scores changed",
    words: (before, after) => `the served scores changed: ${share(after)} are above one that ${share(before)} were`,
  },
  positives: {
    name: "positive labels",
    dash: "dashdot",
    brief: () => "no positive labels",
    words: (before) => `positive labels stopped arriving; before, they were ${share(before)} of the events`,
  },
  missing: ofFields("missing values"),
  new_categories: ofFields("new categories"),
  contradictions: ofFields("values of the wrong kind"),
  out_of_range: ofFields("numbers out of range"),
};

/** An alarm of a field that got worse; `fields` counts it and the others. */
function ofFields(name) {
  return {
    name,
    dash: "longdash",
    brief: (before, after, field) => `${field}: ${name}`,
    words: (before, after, field, fields) =>
      `more ${name} of ${field}${fields > 1 ? ` and ${counted(fields - 1, "other field")}` : ""}: ` +
      `${share(after)} of the events, ${share(before)} before`,
  };
}

export const briefAlarm = ({ kind, before, after, field }) => ALARMS[kind].brief(before, after, field);
export const alarmWords = ({ kind, before, after, field, fields, events }) =>
  `${ALARMS[kind].words(before, after, field, fields)}, at event ${count(events)}`;

/** What happened, in one line. */
export function annotationWords({ kind, text, by, key, data }) {
  if (kind === "note") return by ?? key ? `${text} (${by ?? key})` : text;
  if (kind === "restore") return `rolled back to position ${count(data.position)}`;
  if (kind === "fit") return `fitted after ${counted(data.events, "event")}`;
  const { threshold, ...others } = data;
  const parts = threshold ? [`the threshold follows ${threshold.objective}`] : [];
  return [...parts, ...Object.keys(others).map((name) => `other settings of ${name}`)].join(", ");
}
