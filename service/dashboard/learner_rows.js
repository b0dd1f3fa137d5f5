/* The rows of the overview: what stands in each column, and how a row is brought up to date. */

import { el, put, write } from "./dom.js";
import {
  between,
  count,
  counted,
  duration,
  metricAt,
  fixed,
  intervalWords,
  moment,
  NOTHING,
  rate,
  share,
  short,
  wholeMoment,
} from "./format.js";
import { alarmWords, briefAlarm } from "./alarm_words.js";
import { drawSparkline, sparkline } from "./sparklines.js";

const STALE = 5; // seconds without news from the store that are worth telling

const LETTERS = ["A to Z", "Z to A"];

/* Columns: `of` gives what is sorted by (null sorts last), `rising` whether small values come first at first; `ends` are
 * the words for either order, where what is sorted are no amounts. */
export const COLUMNS = [
  { key: "name", title: "Learner", of: (row) => row.name, rising: true, ends: LETTERS },
  { key: "algorithm", title: "Algorithm", of: (row) => row.algorithm ?? null, rising: true, ends: LETTERS },
  {
    key: "rate",
    title: "Events/s",
    of: (row) => row.rate,
    number: true,
    help: "events learnt or served each second, as this page has counted them over the last ten",
  },
  {
    key: "positives",
    title: "Positives",
    of: (row) => row.class_counts?.positive ?? null,
    number: true,
    help: "positives seen since the start, and their share",
  },
  {
    key: "auc",
    title: "AUC",
    of: (row) => row.window?.auc ?? null,
    number: true,
    rising: true,
    help: "of the window, with its 95 % interval; of an ordinal learner the mean absolute error",
  },
  { key: "trend", title: "AUC over time", of: null, help: "at the last points of the history" },
  {
    key: "f1",
    title: "F1",
    of: (row) => row.window?.f1 ?? null,
    number: true,
    rising: true,
    help: "of the window; of an ordinal learner the accuracy",
  },
  {
    key: "alerts",
    title: "Alert rate",
    of: (row) => row.window?.alert_rate ?? null,
    number: true,
    help: "share of the window's events that were called positive",
  },
  {
    key: "threshold",
    title: "Threshold",
    of: (row) => row.threshold ?? null,
    number: true,
    help: "of the probability, as it is served now",
  },
  {
    key: "delay",
    title: "Label delay",
    of: (row) => row.window?.label_delay_median ?? null,
    number: true,
    help: "median, from an event to its label",
  },
  {
    key: "drift",
    title: "Drift",
    of: (row) => row.last_alarm?.clock ?? row.last_alarm?.events ?? null,
    ends: ["oldest first", "newest first"],
    help: "the newest drift alarm",
  },
];
/** Which rows are shown: what it is called, and whether a row is one. */
export const STATES = {
  all: ["every state", () => true],
  attention: ["in need of attention", (row) => row.trouble !== null || row.drifting],
  drift: ["with a drift alarm", (row) => Boolean(row.last_alarm)],
  unready: ["not ready", (row) => row.trouble !== null],
  asleep: ["asleep", (row) => row.asleep],
};

/** The page of a learner. */
export const href = (name) => `#/learners/${encodeURIComponent(name)}`;

const COMPILED = "kernels are compiled, once for this machine and version, which takes about a minute";
const QUICK = 2; // seconds: no reason is shown for what takes no longer

/** What is shown beside the name of a learner that is not as the others: {text, state}, the state for the style. */
export function stateOf(row) {
  if (row.creating) {
    const long = `, for ${duration(Math.round(row.seconds))} by now: its ${COMPILED}`;
    return { text: `being created${!row.first ? ", in its turn" : row.seconds > QUICK ? long : ""}`, state: "making" };
  }
  if (row.beginning) return { text: `learning its first events: ${COMPILED}`, state: "making" };
  if (row.trouble !== null) return { text: row.trouble, state: "trouble" };
  if (row.asleep) return { text: "asleep until somebody asks for it", state: "asleep" };
  return { text: "", state: row.drifting ? "drift" : "well" };
}

/** What is wrong with a learner; null if nothing is. */
export function troubleOf(row) {
  if (row.failed !== null) return row.failed;
  if (!row.ready) return `not ready: ${row.not_ready ?? "no reason given"}`;
  return row.stale_seconds >= STALE ? `no news from the store for ${duration(Math.round(row.stale_seconds))}` : null;
}

/** Whether an alarm is open, and nobody has acknowledged it. */
export const drifting = ({ open_alarms: open }) => open > 0;

const parts = new WeakMap(); // row -> its elements

/** An empty row. */
export function makeRow(row) {
  const link = el("a", { text: row.name });
  const state = el("small", { class: "state" });
  const texts = Object.fromEntries(
    COLUMNS.slice(1)
      .filter(({ key }) => key !== "trend")
      .map(({ key }) => [key, [el("span"), el("small")]]),
  );
  const trend = sparkline();
  const none = el("span", { text: NOTHING });
  const cells = COLUMNS.map(({ key, title, number }) => {
    const inside = key === "name" ? [link, state] : key === "trend" ? [none, trend] : texts[key];
    return el(
      key === "name" ? "th" : "td",
      {
        role: key === "name" ? "rowheader" : "cell",
        scope: key === "name" ? "row" : null,
        class: number ? "number" : null,
        data: { column: key, title },
      },
      inside,
    );
  });
  const made = el("tr", { role: "row" }, cells);
  parts.set(made, { link, state, texts, trend, none });
  return made;
}

/** Show what is known of a learner by now. */
export function updateRow(element, row) {
  const { link, state, texts, trend, none } = parts.get(element);
  const creating = row.creating === true; // and has neither a page nor metrics yet
  put(link, "href", creating ? null : href(row.name));
  const [head, ...cells] = element.cells;
  if (head.colSpan > 1 !== creating) {
    head.colSpan = creating ? COLUMNS.length : 1;
    for (const cell of cells) cell.hidden = creating;
  }
  const hasTrend = row.trend?.some((value) => value !== null) ?? false;
  none.hidden = hasTrend;
  put(trend, "hidden", !hasTrend);
  put(none, "title", hasTrend ? null : noTrend(row));
  const status = stateOf(row);
  put(element, "data-state", status.state);
  write(state, status.text);
  const say = (key, main, extra = "", title = null) => {
    const [first, second] = texts[key];
    write(first, main);
    write(second, extra);
    put(first.parentElement, "title", title);
  };
  if (row.window === undefined) {
    for (const key of Object.keys(texts)) say(key, NOTHING);
    return;
  }
  const writeMetric = (key, name, format, extra = "", title = null) => {
    const { value, reason } = metricAt(row, `/window/${name}`);
    if (value === null) say(key, NOTHING, reason);
    else say(key, format(value), extra, title);
  };
  say("algorithm", row.algorithm);
  say(
    "rate",
    row.rate === null ? NOTHING : rate(row.rate),
    row.rate === null ? "counting …" : "",
    `${counted(row.events, "event")} learnt, ${count(row.served)} served`,
  );
  const classes = Object.hasOwn(row.class_counts, "positive");
  if (classes) {
    const { negative, positive } = row.class_counts;
    say(
      "positives",
      count(positive),
      negative + positive > 0 ? share(positive / (negative + positive)) : "no events yet",
    );
    const { value: interval, reason } = metricAt(row, "/window/auc_interval");
    if (interval !== null) writeMetric("auc", "auc", fixed(3), between(interval));
    else writeMetric("auc", "auc", fixed(3), `no interval: ${reason}`, intervalWords(row));
    writeMetric("f1", "f1", fixed(3));
    writeMetric("alerts", "alert_rate", share);
    if (row.threshold === null) say("threshold", NOTHING, "none yet", row.not_ready);
    else say("threshold", short(row.threshold), row.threshold >= 1 ? "no alerts now" : "");
    drawSparkline(
      trend,
      row.trend,
      `AUC, last ${counted(row.trend.length, "point")}, now ${row.window.auc?.toFixed(3) ?? "undefined"}`,
      { chance: 0.5 },
    );
  } else {
    say("positives", NOTHING, "ranks", "an ordinal learner has ranks, not positives");
    writeMetric("auc", "mae", (x) => `MAE ${x.toFixed(3)}`);
    writeMetric("f1", "accuracy", fixed(3), "accuracy");
    for (const key of ["alerts", "threshold"]) say(key, NOTHING, "ranks", "an ordinal learner gives ranks, no alerts");
    drawSparkline(trend, row.trend, `mean absolute error, last ${counted(row.trend.length, "point")}`);
  }
  const delay = metricAt(row, "/window/label_delay_median");
  if (delay.value === null) say("delay", NOTHING, "none known", delay.reason); // of most learners: in few words
  else say("delay", duration(delay.value));
  showDrift(say, row);
}

/** Why there is no line to draw. */
function noTrend({ window, undefined: reasons }) {
  if (window === undefined) return "not known";
  return reasons["/window/auc"] ?? reasons["/window/mae"] ?? "the history has no point yet";
}

function showDrift(say, { last_alarm: alarm, alarms, open_alarms: open, drifting: now }) {
  if (alarm === null) {
    say("drift", "none");
    return;
  }
  const all = Object.values(alarms).reduce((a, b) => a + b, 0);
  const when = alarm.clock === null ? `event ${count(alarm.events)}` : moment(alarm.clock);
  say(
    "drift",
    `${now ? "▲ " : ""}${briefAlarm(alarm)}`,
    when,
    `${alarmWords(alarm)}${alarm.clock === null ? "" : `, ${wholeMoment(alarm.clock)}`}; alarms in all: ${all}, open: ${open ?? 0}`,
  );
}
