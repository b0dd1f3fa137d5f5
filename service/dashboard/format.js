/* Numbers, times and sizes as they are read. Times are in the reader's own zone. */

export const NOTHING = "–";

const grouped = new Intl.NumberFormat("en");
const time = new Intl.DateTimeFormat("en-GB", { hour: "2-digit", minute: "2-digit", second: "2-digit" });
const day = new Intl.DateTimeFormat("en-GB", { day: "numeric", month: "short", year: "numeric" });
const full = new Intl.DateTimeFormat("en-GB", { dateStyle: "medium", timeStyle: "long" });

export const count = (n) => grouped.format(n);
export const counted = (n, thing) => `${count(n)} ${thing}${n === 1 ? "" : "s"}`;
export const fixed = (digits) => (x) => x.toFixed(digits);
export const short = (x) => String(Number(x.toPrecision(3))).replace(/^-/, "−");
export const share = (x) => `${short(100 * x)} %`;
export const signed = (digits) => (x) => `${x < 0 ? "−" : "+"}${Math.abs(x).toFixed(digits)}`;

/** A number as `as` shows it; one that was too large for a float64 comes as null. */
export const finite = (x, as) => (x === null ? "overflowed" : as(x));

/** 0.8741 to 0.9012, as an interval is read. */
export const between = ([low, high], digits = 3) => `${low.toFixed(digits)} to ${high.toFixed(digits)}`;

/** Events in a second: 12, 0.4, 1,250. */
export const rate = (x) => (x >= 10 ? count(Math.round(x)) : short(x));

/** The largest unit that a length of time has one of, and its seconds. */
export const unitOf = (seconds) =>
  [
    ["d", 86400],
    ["h", 3600],
    ["min", 60],
  ].find(([, size]) => seconds >= size) ?? ["s", 1];

/** A length of time: 45 s, 3 min, 2.5 h, 12 d. */
export function duration(seconds) {
  const [unit, size] = unitOf(seconds);
  if (size > 1) return `${short(seconds / size)} ${unit}`;
  return seconds >= 1 || seconds === 0 ? `${short(seconds)} s` : `${short(seconds * 1000)} ms`;
}

/** A length of time in full, to the millisecond: 7 days, 1 hour 30 minutes, 45 seconds. */
export function spelt(seconds) {
  let left = Math.round(seconds * 1000);
  const parts = [];
  for (const [name, size] of [
    ["day", 86_400_000],
    ["hour", 3_600_000],
    ["minute", 60_000],
    ["second", 1000],
  ]) {
    const n = name === "second" ? left / size : Math.floor(left / size);
    left -= n * size;
    if (n > 0) parts.push(counted(n, name));
  }
  return parts.join(" ");
}

/** How long ago something was, in whole units: 45 s ago, 2 min ago. */
export function ago(seconds) {
  const [unit, size] = unitOf(seconds);
  return `${Math.max(0, Math.round(seconds / size))} ${unit} ago`;
}

export function bytes(n) {
  for (const [unit, size] of [
    ["GiB", 2 ** 30],
    ["MiB", 2 ** 20],
    ["KiB", 2 ** 10],
  ]) {
    if (n >= size) return `${short(n / size)} ${unit}`;
  }
  return `${n} bytes`;
}

/** The time of day, with the date where it is not today's; seconds since the epoch. */
export function moment(seconds) {
  const at = new Date(seconds * 1000);
  const today = at.toDateString() === new Date().toDateString();
  return today ? time.format(at) : `${day.format(at)}, ${time.format(at)}`;
}

/** The whole date and time with the zone; seconds since the epoch. */
export const wholeMoment = (seconds) => full.format(new Date(seconds * 1000));

export const timeOfDay = (date) => time.format(date);

/** Local date and time as charts and date inputs want it: 2026-01-31T14:02:11. */
export function local(seconds) {
  const at = new Date(seconds * 1000);
  return new Date(at.getTime() - at.getTimezoneOffset() * 60000).toISOString().slice(0, 19);
}

/** Events served under an id, by a document of figures: an ordinal learner gives the number alone. */
export const servedOf = ({ served }) => (typeof served === "number" ? served : served.events);

/** The interval of the window's AUC in words, or why there is none, of a document that has the AUC itself. */
export function intervalWords(document) {
  const { value, reason } = metricAt(document, "/window/auc_interval");
  return value === null ? `no 95 % interval: ${reason}` : `95 %: ${between(value)}`;
}

/** The metric at a JSON pointer of a document with `undefined` reasons: {value, reason}, one of which is null. */
export function metricAt(document, pointer) {
  const value = pointer
    .split("/")
    .slice(1)
    .reduce((part, key) => part?.[key], document);
  if (value !== null && value !== undefined) return { value, reason: null };
  return { value: null, reason: document?.undefined?.[pointer] ?? "not known" };
}
