/* What keeps the page live: server-sent events, rounds of requests, and whether the server answers.
 *
 * The events are read through fetch, not EventSource, which could not send a key. Where no stream is to be had (a proxy
 * holds it back or bars it, the node has too many or is of a release before), the same is polled, and a stream is tried
 * again after a while.
 */

import { Away, Refused, send, reasonOf } from "./api.js";

const OFFLINE = "offline";
const NO_KEY = "a valid API key is required"; // the server's detail says how to send it, for those who write requests
const LONGEST_WAIT = 10; // seconds: the wait doubles with each failure up to this
const BEGINNING = 8; // seconds in which a stream has to begin; the server sends at once
const SILENCE = 25; // seconds without a byte after which a stream is dead; the server sends one each 15
const POLL = 2; // seconds between polls in place of a stream
const POLLS = 30; // after which a stream is tried again; sooner where it may only have failed
export const RARELY = 30; // seconds between questions for what is not there: it may come

/** Whether the server answers, for the line at the top: `connection` dispatches "change". */
class Connection extends EventTarget {
  state = "loading"; // "live", "polling", "away"
  at = null; // when the last bytes arrived
  reason = "";
  next = 0; // when it is tried again, in milliseconds
  polling = false; // the page's stream is replaced by requests
  retries = new Set();

  noteAnswer() {
    this.at = new Date();
    this.#turn(this.polling ? "polling" : "live");
  }

  failed(error, seconds) {
    this.reason = error instanceof Away ? OFFLINE : error.status === 401 ? NO_KEY : reasonOf(error);
    this.next = Date.now() + seconds * 1000;
    this.#turn("away");
  }

  /** What waits to be tried again is, now. */
  retry() {
    for (const again of [...this.retries]) again();
  }

  #turn(state) {
    this.state = state;
    this.dispatchEvent(new Event("change"));
  }
}

export const connection = new Connection();

/** Wait so many seconds, or until a retry is asked for, or the signal. */
function pause(seconds, signal) {
  return new Promise((resolve) => {
    const done = () => {
      clearTimeout(timer);
      connection.retries.delete(done);
      signal.removeEventListener("abort", done);
      resolve();
    };
    const timer = setTimeout(done, seconds * 1000);
    connection.retries.add(done);
    signal.addEventListener("abort", done);
  });
}

const errors = new WeakMap(); // element -> the error that it shows

/** Have an element that shows an error show no longer that the server does not answer than that is so. */
export function untilAnswered(element, error) {
  errors.set(element, error);
  if (!(error instanceof Away)) return;
  const look = () => {
    const outdated = element.isConnected && errors.get(element) === error;
    if (outdated && connection.state === "away" && connection.reason === OFFLINE) return;
    connection.removeEventListener("change", look);
    if (outdated) element.textContent = "the server did not answer; now it does: try again";
  };
  connection.addEventListener("change", look);
}

/** Until the page is seen: a hidden one asks nothing. */
function seen(signal) {
  return new Promise((resolve) => {
    const look = () => {
      if (document.hidden && !signal.aborted) return;
      document.removeEventListener("visibilitychange", look);
      signal.removeEventListener("abort", look);
      resolve();
    };
    document.addEventListener("visibilitychange", look);
    signal.addEventListener("abort", look);
    look();
  });
}

/** Whether an error says that the resource does not exist. */
export const absent = (error) => error instanceof Refused && error.status === 404;

/** The wait after so many failures, give or take: pages that lost the server together do not all come back at once. */
const longer = (seconds, failures) =>
  Math.min(seconds * 2 ** (failures - 1), LONGEST_WAIT) * (0.8 + 0.4 * Math.random());

/** Call `round` (async) now and each so many seconds after it has ended, until the signal; wait longer when it fails.
 *
 * Returns a function that starts the next round at once, or right after the round in progress. A round that requests
 * nothing returns false. `failed` receives errors; for an error that it handles it returns the seconds to the next round,
 * else null.
 */
export function rounds(round, seconds, signal, failed = () => null) {
  let cut; // ends the wait behind the present round
  (async () => {
    let failures = 0;
    while (!signal.aborted) {
      await seen(signal);
      if (signal.aborted) return;
      cut = new AbortController();
      let wait = seconds;
      try {
        const requested = await round();
        failures = 0;
        if (!signal.aborted && requested !== false) connection.noteAnswer();
      } catch (error) {
        if (signal.aborted) return;
        const dealt = failed(error);
        if (dealt === null) {
          failures += 1;
          wait = Math.max(longer(Math.max(1, Math.min(seconds, 2)), failures), error.wait ?? 0);
          connection.failed(error, wait);
        } else {
          wait = dealt;
          if (absent(error)) connection.noteAnswer(); // it answers, if only that there is nothing
        }
      }
      if (!cut.signal.aborted) await pause(wait, AbortSignal.any([signal, cut.signal]));
    }
  })();
  return () => cut?.abort();
}

/** Tell the events of a stream as they come, until the signal or until what they are of is gone.
 *
 * `handlers` has a function for each kind of event, also `gone` where that may be. `poll` (async) asks for the same and
 * calls them; it gets its number, from 0 on, where no stream is to be had: the server says so, or it fails twice while
 * requests are answered.
 */
export async function follow(path, handlers, poll, signal) {
  const at = { last: null, hasEvents: false };
  let failures = 0; // one after the other, without an event between them
  try {
    while (!signal.aborted) {
      await seen(signal);
      if (signal.aborted) return;
      let end;
      let polls = POLLS;
      try {
        at.hasEvents = false;
        end = await read(path, at, handlers, signal);
        failures = 0;
      } catch (error) {
        if (signal.aborted) return;
        failures = at.hasEvents ? 1 : failures + 1;
        const refused = error instanceof Refused && (error.code === "too-many-streams" || absent(error));
        const trouble = refused ? null : failures === 1 ? error : await troubleOf(poll);
        if (signal.aborted) return;
        if (trouble === null) {
          end = "nothing";
          if (!refused) polls = Math.min(POLLS, 2 ** failures);
        } else {
          const wait = Math.max(longer(1, failures), trouble.wait ?? 0);
          connection.failed(trouble, wait);
          await pause(wait, signal);
        }
      }
      if (end === "nothing") {
        end = await polled(handlers, poll, polls, signal);
        at.last = null;
      }
      if (end === "gone") return;
    }
  } finally {
    connection.polling = false;
  }
}

/** What keeps a first poll from being answered; null where it was, if only with that there is nothing. */
async function troubleOf(poll) {
  try {
    await poll(0);
    return null;
  } catch (error) {
    return absent(error) ? null : error;
  }
}

/** Read one stream to its end: "gone", "nothing" where it brought no event, else "ended". */
async function read(path, at, handlers, signal) {
  const cut = new AbortController();
  const hidden = () => document.hidden && cut.abort();
  document.addEventListener("visibilitychange", hidden);
  let watch = setTimeout(() => cut.abort(), BEGINNING * 1000);
  try {
    const reply = await send("GET", path, {
      signal: AbortSignal.any([signal, cut.signal]),
      headers: { accept: "text/event-stream", ...(at.last === null ? {} : { "last-event-id": at.last }) },
    });
    const reader = reply.body.pipeThrough(new TextDecoderStream()).getReader();
    let text = "";
    for (;;) {
      const { done, value } = await reader.read().catch(() => {
        throw new Away(); // a stream that breaks off is an absence like any other
      });
      if (done) break;
      clearTimeout(watch); // a large event takes a slow line a while
      watch = setTimeout(() => cut.abort(), SILENCE * 1000);
      if (at.hasEvents) connection.noteAnswer(); // also of a comment
      const looked = Math.max(text.length - 1, 0);
      text += value;
      if (!text.includes("\n\n", looked)) continue; // what came before has none: it is not searched again
      const last = text.lastIndexOf("\n\n");
      const parts = text.slice(0, last).split("\n\n");
      text = text.slice(last + 2);
      for (const part of parts) {
        const event = parsed(part);
        if (event === null) continue;
        at.hasEvents = true;
        connection.polling = false;
        connection.noteAnswer();
        if (event.id !== undefined) at.last = event.id;
        handlers[event.kind]?.(event.data);
        if (event.kind === "gone") return "gone";
      }
    }
  } catch (error) {
    if (!signal.aborted && cut.signal.aborted) return at.hasEvents || document.hidden ? "ended" : "nothing";
    throw error;
  } finally {
    clearTimeout(watch);
    document.removeEventListener("visibilitychange", hidden);
    cut.abort();
  }
  throw new Away(); // it ended without a word: the node stops
}

/** The kind, id and data of an event; null of a comment. */
function parsed(text) {
  const fields = {};
  for (const line of text.split("\n")) {
    const colon = line.indexOf(": ");
    if (colon > 0) fields[line.slice(0, colon)] = line.slice(colon + 2);
  }
  return fields.data === undefined ? null : { kind: fields.event, id: fields.id, data: JSON.parse(fields.data) };
}

/** The same by polling, for a while; "gone" if that is what it is. Throws nothing. */
async function polled(handlers, poll, polls, signal) {
  for (let n = 0; n < polls && !signal.aborted; n += 1) {
    await seen(signal);
    try {
      await poll(n);
      connection.polling = !signal.aborted;
      connection.noteAnswer();
    } catch (error) {
      if (signal.aborted) break;
      if (absent(error) && handlers.gone) {
        handlers.gone({ detail: error.message });
        return "gone";
      }
      connection.failed(error, POLL);
    }
    await pause(POLL, signal);
  }
  return "ended";
}
