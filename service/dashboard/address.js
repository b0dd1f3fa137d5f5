/* The address: what was chosen on a page, as the part of an axis; words for what of it is not followed; a way on.
 *
 * The bounds `from` and `to` are epoch seconds or ISO 8601 where an axis goes by "clock", and numbers of labelled events
 * where it goes by "events". Either may stand alone.
 */

import { el, write } from "./dom.js";

const LATEST = 8.64e12; // seconds: what a date can be
const OTHER = { clock: "events", events: "clock" };

const path = () => location.hash.split("?", 1)[0];

/** A way on from the page that is shown now, to be gone later; where the reader has left it by then, it is not. */
export function onward() {
  const current = path();
  return (address) => {
    if (path() === current) location.hash = address;
  };
}

/** A bound: null if there is none, or one of the other axis; NaN if it is unreadable. */
function bound(query, end, by) {
  const text = query.get(end);
  if (text === null || query.get("by") === OTHER[by]) return null;
  const number = text.trim() === "" ? NaN : Number(text);
  if (by !== "clock") return number;
  const at = Number.isNaN(number) ? Date.parse(text) / 1000 : number;
  return Math.abs(at) < LATEST ? at : NaN;
}

/** A bound in seconds or events; null if there is none that can be read. */
export function boundOf(query, end, by) {
  const at = bound(query, end, by);
  return Number.isFinite(at) ? at : null;
}

/** The part that is shown of an axis with something at these places; null: all. A bound that is not given is its end. */
export function rangeOf(query, by, places) {
  const [from, to] = ["from", "to"].map((end) => boundOf(query, end, by));
  if (from === null && to === null) return null;
  const [first, last] = [Math.min(...places), Math.max(...places)];
  const [low, high] = [from ?? first, to ?? last];
  return low < high && low <= last && first <= high ? [low, high] : null;
}

/** What of an axis with something at these places is not followed, and why. */
export function unreadOf(query, by, places) {
  const [axis, from, to] = [query.get("by"), bound(query, "from", by), bound(query, "to", by)];
  const parts = [];
  if (axis !== null && axis !== by) parts.push(`there is no axis “${axis}” here`);
  for (const [end, at] of Object.entries({ from, to })) {
    const kind = by === "clock" ? "time (epoch seconds, or ISO 8601)" : "number of events";
    if (at !== null && !Number.isFinite(at)) parts.push(`“${query.get(end)}” (${end}) is no ${kind}`);
  }
  const ends = Object.entries({ from, to }).filter(([, at]) => Number.isFinite(at));
  const backward = ends.length === 2 && from >= to;
  if (backward) parts.push("“from” has to be before “to”");
  else if (ends.length > 0 && places.length > 0 && rangeOf(query, by, places) === null) {
    const sides = ends.map(([end]) => `${end === "from" ? "after" : "before"} “${query.get(end)}” (${end})`);
    parts.push(`there is nothing ${sides.join(" and ")}`);
  }
  return parts;
}

/** An element that says what is not followed. */
export const unreadNote = () => el("p", { class: "trouble unread", role: "status" });

export const tellUnread = (note, parts) => write(note, parts.length > 0 ? `Not followed: ${parts.join("; ")}.` : "");
