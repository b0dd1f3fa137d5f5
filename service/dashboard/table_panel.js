/* A panel of a learner's page: a note and a table, fetched anew while events come. */

import { Away, get, learnerPath, reasonOf } from "./api.js";
import { el, write } from "./dom.js";
import { rounds } from "./live.js";

const PERIOD = 10; // seconds between looks, while events come

/** A subclass has `show(reply)`, which fills the table and returns the text of the note. */
export class TablePanel {
  #position = null;
  #fetched = null;

  /** `path` is what to fetch of the learner; `missing` begins the note of a failure; `content` has the table within. */
  constructor({ name, panel, title, path, missing }, table, content, signal) {
    this.table = table;
    this.path = path;
    this.note = el("p", { class: "quiet", text: "asking …" });
    this.element = el(
      "section",
      { class: "panel", data: { panel } },
      el("h3", { text: title }),
      this.note,
      content,
    );
    this.hurry = rounds(
      () => this.#look(name, signal),
      PERIOD,
      signal,
      (error) => {
        if (error instanceof Away) return null;
        this.table.hidden = true;
        write(this.note, `${missing}: ${reasonOf(error)}`);
        return PERIOD;
      },
    );
  }

  take({ position }) {
    this.#position = position;
  }

  /** Whether there may be more than was shown. */
  get stale() {
    return this.#fetched === null || this.#fetched !== this.#position;
  }

  /** Look again at once: the path is another. */
  renew() {
    this.#fetched = null;
    this.hurry();
  }

  async #look(name, signal) {
    if (!this.stale) return false;
    const [position, path] = [this.#position, this.path];
    const reply = await get(learnerPath(name, path), { signal });
    if (path !== this.path) return true; // it was renewed meanwhile
    this.#fetched = position;
    write(this.note, this.show(reply));
    return true;
  }
}
