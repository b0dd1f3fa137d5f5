/* Labels of scored events that wait some seconds before they are sent, so that they can be undone.
 *
 * On leaving the page they are sent at once.
 */

import { ask, learnerPath, reasonOf } from "./api.js";
import { announce } from "./dialogs.js";
import { isolated } from "./event_words.js";
import { counted } from "./format.js";

const UNDO = 5; // seconds until a label is sent
const KEEPALIVE = 60_000; // bytes of a request that outlives the page: browsers bound them

const PAST = 86_400; // seconds that the newest event is old if the stream is of the past
export const LABELS = { 1: "fraud", 0: "legitimate" };

/** What came of a label. */
const OUTCOMES = {
  applied: (label) => `labelled as ${label}`,
  relabelled: (label) => `had another label; corrected to ${label}`,
  duplicate: (label) => `was labelled as ${label} already`,
  unknown: () => "is no longer remembered: not labelled",
  expired: () => "is too old for a label: not labelled",
};

export class PendingLabels {
  #waiting = new Map(); // id -> {label, timer}, the newest last; what was labelled together has one timer
  #outcomes = new Map(); // id -> what came of its label

  /** `say` shows what has happened; `changed` is called when labels have been sent; `clock` gives the time of the
   * newest event: the labels of a stream of the past are of that time. */
  constructor(name, signal, say, changed, clock) {
    this.clock = clock;
    this.path = learnerPath(name, "/labels");
    this.signal = signal;
    this.say = say;
    this.changed = changed;
    const flush = () => this.#send([...this.#waiting.keys()]);
    addEventListener("pagehide", flush, { signal });
    signal.addEventListener("abort", flush);
  }

  get size() {
    return this.#waiting.size;
  }

  has(id) {
    return this.#waiting.has(id);
  }

  /** What is happening to the label of an event, or has; null: nothing. */
  words(id) {
    const pending = this.#waiting.get(id);
    return pending === undefined ? (this.#outcomes.get(id) ?? null) : `${LABELS[pending.label]}, sent in a moment`;
  }

  add(ids, label) {
    const timer = setTimeout(() => this.#send(this.#of(timer)), UNDO * 1000);
    for (const id of ids) {
      this.#waiting.delete(id); // the newest is the last
      this.#waiting.set(id, { label, timer });
    }
    const what = ids.length === 1 ? isolated(ids[0]) : counted(ids.length, "event");
    this.say(`${what} labelled as ${LABELS[label]}; u undoes it within ${UNDO} seconds.`);
  }

  /** Take back what was labelled last; return its ids. */
  undo() {
    const last = [...this.#waiting.values()].at(-1);
    if (last === undefined) return [];
    clearTimeout(last.timer);
    const ids = this.#of(last.timer);
    for (const id of ids) this.#waiting.delete(id);
    this.say(`${counted(ids.length, "label")} undone.`);
    return ids;
  }

  /** Forget what came of the labels so far. */
  forget() {
    this.#outcomes.clear();
  }

  #of(timer) {
    return [...this.#waiting].filter(([, pending]) => pending.timer === timer).map(([id]) => id);
  }

  async #send(ids) {
    if (ids.length === 0) return;
    const clock = this.clock();
    const time = clock < Date.now() / 1000 - PAST ? { time: clock } : {};
    const labels = ids.map((id) => ({ id, label: this.#waiting.get(id).label, ...time }));
    for (const id of ids) {
      clearTimeout(this.#waiting.get(id).timer);
      this.#waiting.delete(id);
    }
    try {
      const body = { events: labels };
      const keepalive = new Blob([JSON.stringify(body)]).size <= KEEPALIVE; // then it is sent even if the page is closed
      const { results } = await ask("POST", this.path, { body, keepalive });
      labels.forEach(({ id, label }, i) => {
        const outcome = OUTCOMES[results[i].status](LABELS[label]);
        this.#outcomes.set(id, outcome);
        if (results[i].status !== "applied") announce(`${id} ${outcome}`);
      });
      if (this.size === 0) this.say(`${counted(labels.length, "label")} sent.`);
    } catch (error) {
      for (const { id } of labels) this.#outcomes.set(id, `not labelled: ${reasonOf(error)}`);
      announce(`${counted(labels.length, "label")} not sent: ${reasonOf(error)}`, { alarm: true });
    }
    if (!this.signal.aborted) this.changed();
  }
}
