/* What was chosen on a page, as its address has it: the part of an axis, and words for what of it is not followed.
 *
 * The bounds `from` and `to` are epoch seconds or ISO 8601 where an axis goes by "clock", and numbers of labelled events
 * where it goes by "events". Either may stand alone.
 */

import { el, write } from "./dom.js";

const LATEST = 8.64e12; // seconds: what a date can be

/** A bound: null if there is none, NaN if it is unreadable. */
function given(query, end, by) {
  const text = query.get(end);
  if (text === null) return null;
  const number = text.trim() === "" ? NaN : Number(text);
  if (by !== "clock") return number;
  const at = Number.isNaN(number) ? Date.parse(text) / 1000 : number;
  return Math.abs(at) < LATEST ? at : NaN;
}

/** A bound in seconds or events; null if there is none that can be read. */
export function boundOf(query, end, by) {
  const at = given(query, end, by);
  return Number.isFinite(at) ? at : null;
}

/** The part that is shown of an axis with something at these places; null: all. A bound that is not given is its end. */
export function rangeOf(query, by, places) {
  const [from, to] = ["from", "to"].map((end) => boundOf(query, end, by));
  if (from === null && to === null) return null;
  const [low, high] = [from ?? Math.min(...places), to ?? Math.max(...places)];
  return low < high ? [low, high] : null;
}

/** What of an axis with something at these places is not followed, and why. */
export function unreadOf(query, by, places) {
  const [wanted, from, to] = [query.get("by"), given(query, "from", by), given(query, "to", by)];
  const parts = [];
  if (wanted !== null && wanted !== by) parts.push(`there is no axis “${wanted}” here`);
  for (const [end, at] of Object.entries({ from, to })) {
    const kind = by === "clock" ? "time (epoch seconds, or ISO 8601)" : "number of events";
    if (at !== null && !Number.isFinite(at)) parts.push(`“${query.get(end)}” (${end}) is no ${kind}`);
  }
  if (from !== null && to !== null && from >= to) parts.push("“from” has to be before “to”");
  const alone = [from, to].filter(Number.isFinite).length === 1;
  if (alone && places.length > 0 && rangeOf(query, by, places) === null) {
    const [side, end] = Number.isFinite(from) ? ["after", "from"] : ["before", "to"];
    parts.push(`there is nothing ${side} “${query.get(end)}” (${end})`);
  }
  return parts;
}

/** An element that says what is not followed. */
export const unreadNote = () => el("p", { class: "trouble unread", role: "status" });

export const tellUnread = (note, parts) => write(note, parts.length > 0 ? `Not followed: ${parts.join("; ")}.` : "");
