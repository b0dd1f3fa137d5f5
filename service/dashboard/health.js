/* The first row of a learner's page: is it all right? Each line says one thing in words, with a colour. */

import { briefAlarm } from "./alarm_words.js";
import { arrange, el, put, write } from "./dom.js";
import { count, counted, metricAt, moment, share, signed } from "./format.js";

const WEEK = 7 * 86400;

/** The alerts of a budget so far: 3 of 100 alerts; resets 1 Dec 2026, 01:00:00. */
export function budgetWords({ alerts, limit, resets }) {
  const used = `${count(alerts)} of ${counted(limit, "alert")}`;
  return resets === null ? used : `${used}; resets ${moment(resets)}`;
}

/** The change of a metric since the newest point of the history that is at least a week old; "" without such a point. */
function changeOf(points, column, { clock, value }) {
  const old = ({ clock: then, [column]: before }) => then !== null && then <= clock - WEEK && Number.isFinite(before);
  const point = clock === null ? undefined : points.findLast(old);
  if (point === undefined) return "";
  const days = Math.round((clock - point.clock) / 86400);
  return `, ${signed(3)(value - point[column])} against ${counted(days, "day")} before`;
}

export class Health {
  #ranks;
  #learner = null;
  #metrics = null;
  #points = [];
  #alarms = null;

  constructor(ranks) {
    this.#ranks = ranks;
    this.element = el("ul", { class: "health panel", "aria-label": "Is it all right?" });
  }

  /** Take what has come: the learner's document, its metrics, points of the history, or its alarms. */
  take({ learner = this.#learner, metrics = this.#metrics, points = this.#points, alarms = this.#alarms }) {
    [this.#learner, this.#metrics, this.#points, this.#alarms] = [learner, metrics, points, alarms];
    if (learner === null || metrics === null || alarms === null) return;
    const lines = [this.#ranking(), ...(this.#ranks ? [] : [this.#precision(), this.#alerts()]), this.#labels(), this.#open()];
    arrange(
      this.element,
      lines,
      ([name]) => name,
      ([name]) => el("li", { data: { health: name } }),
      (item, [, state, text]) => {
        write(item, text);
        put(item, "data-state", state);
      },
    );
  }

  #live(...kinds) {
    return this.#alarms.filter(({ kind, state }) => kinds.includes(kind) && state !== "resolved");
  }

  #ranking() {
    const [column, title] = this.#ranks ? ["mae", "Mean absolute error"] : ["auc", "AUC"];
    const { value, reason } = metricAt(this.#metrics, `/window/${column}`);
    if (value === null) return ["ranking", "unknown", `${title}: ${reason}.`];
    const change = changeOf(this.#points, column, { clock: this.#metrics.clock, value });
    const chance = !this.#ranks && value <= 0.5;
    const worse = chance || this.#live("auc", "scores").length > 0;
    return ["ranking", worse ? "bad" : "good", `${title} ${value.toFixed(3)}${change}.`];
  }

  #precision() {
    const { value, reason } = metricAt(this.#metrics, "/window/precision");
    if (value === null) return ["precision", "unknown", `Precision: ${reason}.`];
    return ["precision", "neutral", `${share(value)} of the alerts are right.`];
  }

  #alerts() {
    const use = this.#learner.alert_budget ?? null;
    if (use !== null) return ["alerts", "neutral", `${budgetWords(use)}.`];
    const { value, reason } = metricAt(this.#metrics, "/window/alert_rate");
    if (value === null) return ["alerts", "unknown", `Alerts: ${reason}.`];
    return ["alerts", "neutral", `${share(value)} of the events are alerts.`];
  }

  #labels() {
    const { value, reason } = metricAt(this.#metrics, "/window/label_coverage");
    if (this.#live("positives").length > 0) return ["labels", "bad", "Positive labels stopped arriving."];
    if (value === null) return ["labels", "unknown", `Label coverage: ${reason}.`];
    return ["labels", "neutral", `${share(value)} of the scored events have a label.`];
  }

  #open() {
    const open = this.#alarms.filter(({ state }) => state !== "resolved");
    if (open.length === 0) return ["alarms", "good", "No open alarm."];
    const unread = open.some(({ state }) => state !== "acknowledged");
    return ["alarms", unread ? "bad" : "neutral", `${counted(open.length, "open alarm")}: ${open.map(briefAlarm).join("; ")}.`];
  }
}
