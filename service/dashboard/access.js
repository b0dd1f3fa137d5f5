/* What the key in use may do: `GET v1/key`, requested once when the page is loaded, and again when another key is entered.
 *
 * A server without that request (404), and one without keys, let everything be done. Until the answer is there nothing
 * is withheld: the server refuses anyway what a key may not.
 */

import { Away, get, Refused, theKey } from "./api.js";

const UNKNOWN = { name: null, scopes: null, learners: null };

class Access extends EventTarget {
  #key = UNKNOWN;
  #requested = false; // the answer is there, or on its way
  #turn = 0; // of asking: only the newest answer counts
  keyed = false; // the server has keys

  /** Ask anew; the page goes on meanwhile. */
  async ask() {
    if (this.#requested) return;
    this.#requested = true;
    const turn = (this.#turn += 1);
    try {
      const key = await get("key");
      if (turn === this.#turn) this.#take(key);
    } catch (error) {
      if (turn !== this.#turn) return;
      if (error instanceof Refused && error.status === 401) this.refused();
      else if (error instanceof Refused && error.status < 500) this.#take(UNKNOWN);
      else if (error instanceof Away || error instanceof Refused) this.#requested = false; // later, when the server is well
      else throw error;
    }
  }

  /** Another key is used from now on. */
  renew() {
    this.#requested = false;
    this.ask();
  }

  #take(key, keyed = key.name !== null) {
    this.#key = key;
    this.keyed ||= keyed;
    this.dispatchEvent(new Event("change"));
  }

  /** A request was refused for want of a key, or the one in use is not accepted: nothing can be done by it. */
  refused() {
    this.#requested = true; // a key that is refused is not tried again: the server counts that
    this.#turn += 1;
    this.#take({ ...UNKNOWN, scopes: [] }, true);
  }

  /** Which learners the key is for, in words; null where it is for all. */
  get only() {
    const { name, learners } = this.#key;
    return learners === null || learners === undefined ? null : `the key ${name} is for learners named ${learners}`;
  }

  /** Why something that needs a scope cannot be done; null where it can. */
  lacks(scope) {
    const { name, scopes } = this.#key;
    if (scopes === null || scopes.includes(scope)) return null;
    if (name !== null) return `you need the ${scope} scope, which the key ${name} lacks`;
    return theKey() === null ? "an API key is required" : "the API key is not accepted";
  }
}

export const access = new Access();

/** Call `show` with the reason why the key lacks a scope (null: it has it), now and whenever that changes. */
export function watchScope(scope, signal, show) {
  const report = () => show(access.lacks(scope));
  access.addEventListener("change", report, { signal });
  report();
}
