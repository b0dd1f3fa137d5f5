/* The dashboard's frame: which page the address names, the line that says whether the server answers, keys, news.
 *
 *     #/                    overview.js   every learner
 *     #/learners/NAME       learner.js    one of them
 *     #/alerts/NAME         alerts.js     its scored events, to be labelled
 *     #/compare[/GROUP]     compare.js    the learners of a group on the same events
 *     #/create              create.js     a form for a new one
 *
 * What the reader chose on a page stands behind a ? in the address, so that it can be reloaded and sent on. A page is
 * shown by its function `show(main, place, signal)` and ends with the signal.
 */

import { access } from "./access.js";
import { keepKey, theKey } from "./api.js";
import { askKey } from "./dialogs.js";
import { el, put, write } from "./dom.js";
import { timeOfDay } from "./format.js";
import { connection } from "./live.js";
import * as alerts from "./alerts.js";
import * as compare from "./compare.js";
import * as create from "./create.js";
import * as learner from "./learner.js";
import * as overview from "./overview.js";

const byId = (id) => document.getElementById(id);
const main = byId("main");

/* ---- Places ------------------------------------------------------------------------------------------------------ */

const PAGES = [
  [/^\/?$/, "overview", overview.show],
  [/^\/learners\/([^/]+)$/, "overview", learner.show],
  [/^\/alerts\/([^/]+)$/, "overview", alerts.show],
  [/^\/compare(?:\/([^/]+))?$/, "compare", compare.show],
  [/^\/create$/, "create", create.show],
];
let leave = new AbortController();
let current = null; // the address that is on the page
let overviewLeft = "#/"; // the overview's address as the reader left it, with its filter and sort

function showing(address) {
  current = address;
  if (/^#\/?(\?|$)/.test(address)) overviewLeft = address;
}

/** A place: its name (of a learner or a group), what was chosen there, and `keep` to put that into the address. */
class Place {
  constructor(path, name, query) {
    this.path = path;
    this.name = name;
    this.query = query;
  }

  /** Where the overview is to be found as it was left. */
  get overview() {
    return overviewLeft;
  }

  /** Take new values (null: the usual one); the page itself stays as it is. */
  keep(values) {
    for (const [key, value] of Object.entries(values)) {
      if (value === null || value === "") this.query.delete(key);
      else this.query.set(key, value);
    }
    showing(`#${this.path}${this.query.size > 0 ? `?${this.query}` : ""}`);
    history.replaceState(null, "", current);
  }
}

function go() {
  const address = location.hash || "#/";
  if (address === current) return;
  const first = current === null;
  showing(address);
  const [, path, query] = /^#([^?]*)\??(.*)$/s.exec(address);
  leave.abort();
  leave = new AbortController();
  if (!first) leaveDialogs();
  main.replaceChildren();
  const [match, page, show] = pageOf(path);
  for (const link of document.querySelectorAll("[data-page]")) {
    put(link, "aria-current", link.dataset.page === page ? "page" : null);
  }
  const named = show === undefined ? undefined : decoded(match[1]);
  byId("connection").hidden = named === undefined; // that page requests nothing
  if (named === undefined) {
    main.append(missing(path));
    document.title = "Not found – rarestream";
  } else {
    show(main, new Place(path, named, new URLSearchParams(query)), leave.signal);
  }
  scrollTo(0, 0);
  if (!first) main.focus({ preventScroll: true }); // so that a screen reader begins with the new page
}

/** Close what asks about the page that is left. */
function leaveDialogs() {
  for (const box of document.querySelectorAll("dialog[open]")) box.close();
}

/** The name that an address has; null where it has none, undefined where it is malformed. */
function decoded(text) {
  if (text === undefined) return null;
  try {
    return decodeURIComponent(text);
  } catch (error) {
    if (error instanceof URIError) return undefined;
    throw error;
  }
}

function pageOf(path) {
  for (const [pattern, page, show] of PAGES) {
    const match = pattern.exec(path);
    if (match !== null) return [match, page, show];
  }
  return [null, null, undefined];
}

const missing = (path) =>
  el(
    "section",
    { class: "message" },
    el("h1", { text: "There is no such page" }),
    el("p", { text: `There is no page at ${path}.` }),
    el("p", {}, el("a", { href: "#/", text: "To the overview" })),
  );

/* ---- Whether the server answers ---------------------------------------------------------------------------------- */

const WORDS = { loading: "connecting …", live: "live", polling: "live, by polling" };

function showConnection() {
  const { state, at, reason, next } = connection;
  const away = state === "away";
  byId("connection").dataset.state = state;
  write(byId("state"), away ? `${reason},` : WORDS[state]);
  const seconds = Math.max(0, Math.ceil((next - Date.now()) / 1000));
  const age = at === null ? "" : `; metrics from ${timeOfDay(at)}`;
  write(
    byId("since"),
    away ? `retrying ${seconds > 0 ? `in ${seconds} s` : "now"}${age}` : at === null ? "" : timeOfDay(at),
  );
  byId("retry").hidden = !away;
}

connection.addEventListener("change", () => {
  showConnection();
  if (connection.state === "live" || connection.state === "polling") access.ask();
});
setInterval(() => connection.state === "away" && showConnection(), 1000);
byId("retry").addEventListener("click", () => connection.retry());
addEventListener("online", () => connection.retry());

/* ---- The key ----------------------------------------------------------------------------------------------------- */

let declined; // the key with which the reader wanted no other
let unaccepted; // the key that the server rejected

async function changeKey(refused) {
  const [before, place] = [theKey(), current];
  const key = await askKey(before, refused);
  showKey();
  if (key === undefined) {
    if (current === place) declined = before; // else the page was left, and the next one asks for itself
    return;
  }
  keepKey(key);
  unaccepted = undefined; // even where it is the same one: it may be good by now
  showKey();
  access.renew();
  current = null; // the page begins anew, with the new key
  go();
}

function showKey() {
  byId("key").hidden = !access.keyed && theKey() === null; // a server without keys needs none
  const key = theKey();
  const [text, label] =
    key === null
      ? ["Key …", "Enter an API key"]
      : key === unaccepted
        ? ["Key ✗", "The API key is not accepted; enter another"]
        : ["Key ✓", "An API key is in use; change it"];
  write(byId("key"), text);
  put(byId("key"), "aria-label", label);
}

byId("key").addEventListener("click", () => changeKey(null));
document.addEventListener("key-wanted", ({ detail: { refused, key, interactive } }) => {
  if (refused.status === 401) {
    if (key === theKey()) access.refused();
    unaccepted = key ?? undefined;
    showKey();
  }
  if (key !== theKey() || document.querySelector("dialog.key[open]")) return;
  if (interactive || (refused.status === 401 && key !== declined)) changeKey(refused);
});

access.addEventListener("change", showKey);
document.querySelector(".skip").addEventListener("click", (event) => {
  event.preventDefault(); // the address names the page and what was chosen on it
  main.focus();
});
addEventListener("hashchange", go);
showKey();
access.ask();
showConnection();
go();
