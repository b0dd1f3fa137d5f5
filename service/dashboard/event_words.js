/* A scored event in words: its fields, what contributes to its score, and what happened to it. */

import { duration, signed, wholeMoment } from "./format.js";
import { LABELS } from "./pending_labels.js";

const STEPS = { served: "scored", labelled: "labelled", corrected: "corrected to", assumed: "without a label taken as" };

/** A value of a field in a few words. */
export const valueWords = (value) => (typeof value === "string" ? value : JSON.stringify(value));

export const fieldsOf = ({ features }) => Object.entries(features ?? {});

/** A text of an event within another: its direction of writing ends with it. */
export const isolated = (text) => `\u2068${text}\u2069`;

/** The fields of an event, first those that contribute most to its score. */
export function ranked(event) {
  const reasons = event.explanation?.features ?? [];
  const place = ([field]) => {
    const at = reasons.findIndex(({ name }) => name === field || name.startsWith(`${field}=`) || name.startsWith(`${field}~`));
    return at < 0 ? reasons.length : at;
  };
  return fieldsOf(event).sort((a, b) => place(a) - place(b));
}

/** The contributions in words: what raises the score, then what lowers it. */
export function reasonWords(explanation) {
  if (!explanation) return "";
  const list = (sign) =>
    explanation.features
      .filter(({ contribution }) => sign * contribution > 0)
      .map(({ name, contribution }) => `${isolated(name)} ${signed(2)(contribution)}`);
  const [up, down] = [list(1), list(-1)];
  return [up.length > 0 ? `raised by ${up.join(", ")}` : "", down.length > 0 ? `lowered by ${down.join(", ")}` : ""]
    .filter((text) => text !== "")
    .join("; ");
}

/** A step of an event's history in words; `served` is the event's time. */
export function stepWords({ kind, time, label }, served) {
  const what = label === null ? STEPS[kind] : `${STEPS[kind]} ${LABELS[label] ?? label}`;
  if (time === null) return what;
  return kind === "served" || time < served ? `${what}, ${wholeMoment(time)}` : `${what}, ${duration(time - served)} later`;
}
