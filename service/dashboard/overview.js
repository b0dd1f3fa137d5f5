/* Every learner in one table: sorted, filtered, grouped; brought up to date in place.
 *
 * One stream gives all rows, and then those that change, which is what makes five hundred of them quick. Those that sleep
 * are listed and not woken. Groups stand above the table, their learners side by side.
 */

import { watchScope } from "./access.js";
import { tellUnread, unreadNote } from "./address.js";
import { get } from "./api.js";
import { announce } from "./dialogs.js";
import { arrange, el, put, write } from "./dom.js";
import { count, counted } from "./format.js";
import { Groups } from "./groups.js";
import { alarmWords } from "./alarm_words.js";
import { connection, follow, rounds } from "./live.js";
import { COLUMNS, drifting, href, makeRow, STATES, troubleOf, updateRow } from "./learner_rows.js";

const PERIOD = 2; // seconds after which rates are counted anew, though nothing has changed
const UNKNOWN =
  "This node does not know its learners yet: it starts, or waits for its store. They appear here by themselves.";
const LOOKING = "Looking for learners …";
const SETTLED = 1.5; // seconds from the first answer to saying that there are none: of a service that has just started some
// may be requested at this moment, as the demo does, and the next answer, a second later, has them
const GROUPS = 5; // polls between two looks at the groups
const MOMENT = 1; // seconds: first events that take longer wait for compilers
const RATE_OVER = 10; // seconds over which events are counted for the rate

export function show(main, place, signal) {
  new Overview(main, place, signal).start();
}

class Overview {
  #rows = new Map(); // name -> what is known of it
  #counted = new Map(); // name -> [{at, learnt, served}] of the last seconds
  #alarms = null; // name -> number of alarms, once there was a round
  #listing = null; // the document `GET /v1/learners?figures=true` as it is by now
  #time = 0; // when it was last shown, in seconds
  #settled = null; // whether the first answer is long enough ago to say that there are none; null before it

  constructor(main, place, signal) {
    this.place = place;
    this.signal = signal;
    this.groups = new Groups();
    const { query } = place;
    this.sort = COLUMNS.some(({ key, of }) => key === query.get("sort") && of) ? query.get("sort") : "name";
    this.down = query.get("order") === "down";
    this.search = el("input", {
      type: "search",
      value: query.get("q") ?? "",
      placeholder: "name or algorithm",
      "aria-label": "Filter by name or algorithm",
    });
    this.algorithm = el(
      "select",
      { name: "algorithm", "aria-label": "Algorithm" },
      el("option", { value: "", text: "every algorithm" }),
    );
    this.state = el(
      "select",
      { name: "state", "aria-label": "State" },
      Object.entries(STATES).map(([value, [text]]) => el("option", { value, text })),
    );
    this.state.value = Object.hasOwn(STATES, query.get("state")) ? query.get("state") : "all";
    this.order = el(
      "select",
      { name: "sort", "aria-label": "Sort by" },
      COLUMNS.filter(({ of }) => of).flatMap(({ key, title, ends = ["smallest first", "largest first"] }) => [
        el("option", { value: `${key} up`, text: `${title}, ${ends[0]}` }),
        el("option", { value: `${key} down`, text: `${title}, ${ends[1]}` }),
      ]),
    );
    this.total = el("p", { class: "found", role: "status" });
    this.unread = unreadNote();
    this.table = this.#table();
    this.waiting = el("p", { class: "message", text: "The learners appear here as soon as the server has answered." });
    this.tools = el(
      "form",
      { class: "tools", role: "search", on: { submit: (event) => event.preventDefault() } },
      el("label", {}, "Show ", this.search),
      this.algorithm,
      this.state,
      el("label", { class: "narrow" }, "sorted by ", this.order),
      this.total,
      this.unread,
    );
    const clear = el("button", { type: "button", text: "Show all", on: { click: () => this.#cleared() } });
    const none = el("p", { text: "No learner matches what is entered above." });
    this.none = el("section", { class: "message", hidden: true }, none, el("p", {}, clear));
    this.listed = el("div", { class: "listed", hidden: true }, this.tools, this.table, this.none);
    this.empty = empty();
    this.empty.hidden = true;
    this.trouble = el("p", { class: "panel trouble", role: "alert", hidden: true });
    main.append(
      el("h1", { class: "unseen", text: "Learners" }),
      this.trouble,
      this.waiting,
      this.empty,
      this.groups.element,
      this.listed,
    );
    document.title = "Learners – rarestream";
  }

  start() {
    for (const part of [this.search, this.algorithm, this.state])
      part.addEventListener("input", () => this.#filtered());
    this.order.addEventListener("input", () => {
      const [sort, order] = this.order.value.split(" ");
      this.#sorted(sort, order === "down");
    });
    this.#showSort();
    watchScope("read", this.signal, (reason) => {
      if (reason !== null && this.#listing === null) write(this.waiting, `No learner can be shown: ${reason}.`);
    });
    const { signal } = this;
    const handlers = {
      learners: (listing) => this.#take(listing),
      changed: (change) => this.#take(merged(this.#listing, change)),
      groups: ({ groups }) => {
        this.groups.take(groups);
        this.groups.show(this.#rows);
      },
    };
    follow(
      "stream",
      handlers,
      async (n) => {
        const [listing, groups] = await Promise.all([
          get("learners?figures=true", { signal }),
          n % GROUPS === 0 ? get("groups?tests=true", { signal }) : null,
        ]);
        handlers.learners(listing);
        if (groups !== null) handlers.groups(groups);
      },
      signal,
    );
    rounds(async () => this.#recount(), PERIOD, signal);
  }

  /** Nothing has changed for a while: then rates have. Not so while the server is away. */
  #recount() {
    const stale = performance.now() / 1000 - this.#time >= PERIOD;
    if (this.#listing !== null && connection.state === "live" && stale) this.#take(this.#listing);
    return false; // no request was sent
  }

  #take(listing) {
    const at = performance.now() / 1000;
    this.#listing = listing;
    this.#time = at;
    if (this.#settled === null) this.#settle();
    write(this.trouble, listing.trouble ?? "");
    this.trouble.hidden = !listing.trouble;
    const rows = listing.learners.map((row) => ({
      ...row,
      asleep: false,
      trouble: troubleOf(row),
      drifting: drifting(row),
      rate: this.#rate(row, at),
      ...this.#beginning(row, at),
    }));
    const bare = { asleep: false, trouble: null, drifting: false, rate: null };
    for (const name of listing.asleep) rows.push({ ...bare, name, asleep: true });
    listing.creating.forEach((creation, i) => rows.push({ ...bare, ...creation, creating: true, first: i === 0 }));
    for (const [name, why] of Object.entries(listing.unavailable)) rows.push({ ...bare, name, trouble: why });
    this.#rows = new Map(rows.map((row) => [row.name, row]));
    for (const name of this.#counted.keys()) if (!this.#rows.has(name)) this.#counted.delete(name);
    this.#tellAlarms(listing.learners);
    this.#show();
  }

  /** Wait a moment before the page says that there are no learners. */
  #settle() {
    this.#settled = false;
    setTimeout(() => {
      this.#settled = true;
      if (!this.signal.aborted) this.#show();
    }, SETTLED * 1000);
  }

  /** Events learnt or served in a second, whichever are more; null at the first look. */
  #rate({ name, events, served }, at) {
    const samples = (this.#counted.get(name) ?? []).filter(
      (sample) => at - sample.at <= RATE_OVER && sample.learnt <= events && sample.served <= served,
    );
    samples.push({ at, learnt: events, served });
    this.#counted.set(name, samples);
    const [first] = samples;
    return samples.length < 2 ? null : Math.max(events - first.learnt, served - first.served) / (at - first.at);
  }

  /** Since when a learner has been at its first events, and whether that takes as long as compilers do. */
  #beginning({ name, events, busy }, at) {
    const start = busy && events === 0 ? (this.#rows.get(name)?.start ?? at) : null;
    return { start, beginning: start !== null && at - start >= MOMENT };
  }

  #tellAlarms(learners) {
    const before = this.#alarms;
    this.#alarms = new Map(
      learners.map(({ name, alarms }) => [name, Object.values(alarms).reduce((a, b) => a + b, 0)]),
    );
    if (before === null) return;
    for (const row of learners) {
      if (before.has(row.name) && this.#alarms.get(row.name) > before.get(row.name)) {
        announce(`Drift alarm: ${row.name}: ${alarmWords(row.last_alarm)}`, { href: href(row.name), alarm: true });
      }
    }
  }

  /* ---- Showing ---- */

  #show() {
    const all = [...this.#rows.values()];
    const loaded = this.#listing?.loaded; // whether the node knows all its learners
    const none = loaded && this.#settled;
    this.waiting.hidden = all.length > 0 || none;
    write(this.waiting, loaded ? LOOKING : UNKNOWN);
    put(this.waiting, "data-state", loaded ? "looking" : "unloaded");
    this.empty.hidden = all.length > 0 || !none;
    this.listed.hidden = all.length === 0;
    const algorithms = [...new Set(all.map((row) => row.algorithm).filter(Boolean))].sort();
    arrange(
      this.algorithm,
      ["", ...algorithms],
      (name) => name || "every",
      (name) => el("option", { value: name, text: name || "every algorithm" }),
    );
    const choice = this.place.query.get("algorithm");
    if (algorithms.includes(choice)) this.algorithm.value = choice; // which may come later than the page
    this.#tellUnread(algorithms);
    const visible = this.#ordered(all.filter((row) => this.#matches(row)));
    write(this.total, foundWords(all, visible));
    this.table.hidden = visible.length === 0;
    this.none.hidden = visible.length > 0;
    arrange(this.table.tBodies[0], visible, (row) => row.name, makeRow, updateRow);
    this.groups.show(this.#rows);
  }

  /** What of the address is not followed. */
  #tellUnread(algorithms) {
    const choices = {
      algorithm: ["there is no learner with the algorithm", algorithms],
      state: ["there is no state", Object.keys(STATES)],
      sort: ["there is no column to sort by that is called", COLUMNS.filter(({ of }) => of).map(({ key }) => key)],
      order: ["there is no order", ["up", "down"]],
    };
    const parts = Object.entries(choices)
      .map(([key, [words, values]]) => [words, values, this.place.query.get(key)])
      .filter(([, values, choice]) => choice !== null && !values.includes(choice))
      .map(([words, , choice]) => `${words} “${choice}”`);
    tellUnread(this.unread, parts);
  }

  #matches(row) {
    const term = this.search.value.trim().toLowerCase();
    return (
      (term === "" || `${row.name} ${row.algorithm ?? ""}`.toLowerCase().includes(term)) &&
      (this.algorithm.value === "" || row.algorithm === this.algorithm.value) &&
      STATES[this.state.value][1](row)
    );
  }

  #ordered(rows) {
    const { of } = COLUMNS.find(({ key }) => key === this.sort);
    const turn = this.down ? -1 : 1;
    return rows.sort((a, b) => {
      const [x, y] = [of(a), of(b)];
      if (x === y || (x === null && y === null)) return a.name < b.name ? -1 : 1;
      if (x === null || y === null) return x === null ? 1 : -1;
      return (x < y ? -1 : 1) * turn;
    });
  }

  #filtered() {
    this.place.keep({
      q: this.search.value.trim(),
      algorithm: this.algorithm.value,
      state: this.state.value === "all" ? null : this.state.value,
    });
    this.#show();
  }

  #cleared() {
    this.search.value = this.algorithm.value = "";
    this.state.value = "all";
    this.#filtered();
    this.search.focus();
  }

  #sorted(sort, down) {
    this.sort = sort;
    this.down = down;
    this.place.keep({ sort: sort === "name" && !down ? null : sort, order: down ? "down" : null });
    this.#showSort();
    this.#show();
  }

  #showSort() {
    this.order.value = `${this.sort} ${this.down ? "down" : "up"}`;
    for (const head of this.table.tHead.rows[0].cells) {
      put(head, "aria-sort", head.dataset.column === this.sort ? (this.down ? "descending" : "ascending") : null);
    }
  }

  #table() {
    const heads = COLUMNS.map(({ key, title, of, rising, number, help }) => {
      const turn = () => this.#sorted(key, this.sort === key ? !this.down : !rising);
      return el(
        "th",
        { scope: "col", role: "columnheader", class: number ? "number" : null, data: { column: key }, title: help },
        of ? el("button", { type: "button", text: title, on: { click: turn } }) : title,
      );
    });
    // explicit roles: on a narrow screen the rows are laid out as cards, and would lose them
    return el(
      "table",
      { class: "overview", role: "table" },
      el("caption", { class: "unseen", text: "Learners and their live metrics" }),
      el("thead", { role: "rowgroup" }, el("tr", { role: "row" }, heads)),
      el("tbody", { role: "rowgroup" }),
    );
  }
}

/** The document with what has changed in it: an event of the stream. */
function merged(listing, { learners, gone, ...rest }) {
  const rows = new Map(listing.learners.map((row) => [row.name, row]));
  for (const name of gone) rows.delete(name);
  for (const row of learners) rows.set(row.name, row);
  return { ...listing, ...rest, learners: [...rows.values()] };
}

/** How many learners there are, and how many of them are shown. */
function foundWords(all, visible) {
  const creating = all.filter((row) => row.creating).length;
  const words = counted(all.length, "learner");
  if (visible.length < all.length) return `${count(visible.length)} of ${words}`;
  if (creating === 0) return words;
  return creating === all.length ? `${words} being created` : `${words}, ${count(creating)} of them being created`;
}

/* ---- Nothing yet ------------------------------------------------------------------------------------------------- */

function empty() {
  const base = new URL(".", location.href).href;
  const curl = `curl -X PUT \\
  ${base}v1/learners/fraud \\
  -H 'Content-Type: application/json' \\
  -d '{"features": {"kind": "named"}}'`;
  const create = `rarestream create fraud --features named \\
  --url ${base}`;
  return el(
    "section",
    { class: "message" },
    el("h2", { text: "No learners yet" }),
    el("p", {}, el("a", { class: "button primary", href: "#/create", text: "Create one, or import a file" })),
    el("p", { text: "or over HTTP:" }),
    el("pre", { data: { command: "curl" } }, el("code", { text: curl })),
    el("p", { text: "or from the command line:" }),
    el("pre", { data: { command: "rarestream" } }, el("code", { text: create })),
    el(
      "p",
      {},
      "It appears here by itself; ",
      el("a", { href: "docs", text: "the API" }),
      " says how to send it events.",
    ),
  );
}
