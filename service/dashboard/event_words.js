/* A scored event in words: its fields, and what contributes to its score. */

import { signed } from "./format.js";

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
