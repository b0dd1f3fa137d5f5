/* The dashboard: asks the API for every learner's figures each two seconds and shows them.
 *
 * poll -> collect (all answers of one round, or none) -> show (status, cards, legend, chart)
 *
 * Names and messages come from users and reach the page as text only: through textContent, and through plain() in the
 * chart, which reads its labels as markup. The page holds no figures of its own: what it shows is one round's answers.
 */

const PERIOD = 2; // seconds between rounds
const LONGEST_WAIT = 30; // seconds: the wait doubles with each failed round up to this
const PATIENCE = 10; // seconds given to one request
const STALE = 5; // seconds without news from the store that are worth telling
const COLOURS = 6; // --line-0 ... in the style sheet; after them the same colours come back dashed, then dotted
const DASHES = ["solid", "dash", "dot"];
const UNEVEN = 30; // times the events of another learner: from there the chart's axis is logarithmic
const FIGURES = {
  auc: { of: "classes", title: "AUC in the window", label: "AUC", digits: ".4f" },
  f1: { of: "classes", title: "F1 in the window", label: "F1", digits: ".3f" },
  threshold: { of: "classes", title: "Threshold", label: "threshold", digits: ".3~g" },
  mae: { of: "ranks", title: "Mean absolute error in the window", label: "MAE", digits: ".4f" },
  accuracy: { of: "ranks", title: "Accuracy in the window", label: "accuracy", digits: ".3f" },
};
const NOTHING = "–";

const byId = (id) => document.getElementById(id);

/* ---- Asking ------------------------------------------------------------------------------------------------------ */

/** Nothing answered, or not in time. */
class Away extends Error {
  message = "offline";
}

/** The server answered with an error. */
class Refused extends Error {
  constructor(status, title, wait) {
    super(`the server answers ${status}${title ? ` (${title})` : ""}`);
    this.status = status;
    this.wait = wait; // seconds, from Retry-After
  }
}

/** GET a path below v1/ and read its JSON. Throws Away or Refused; SyntaxError where the answer is not JSON. */
async function get(path) {
  const signal = AbortSignal.timeout(PATIENCE * 1000);
  let reply, body;
  try {
    reply = await fetch(`v1/${path}`, { cache: "no-store", signal });
    body = await reply.text();
  } catch {
    throw new Away();
  }
  if (reply.ok) return JSON.parse(body);
  throw new Refused(reply.status, titleOf(body), Number(reply.headers.get("Retry-After")) || 0);
}

/** The title of a problem+json body, if it is one: a proxy's error page is not. */
function titleOf(body) {
  try {
    return JSON.parse(body).title;
  } catch {
    return undefined;
  }
}

/** Like get(), but one learner's trouble is not the whole page's: {gone} when it was deleted, {error} when refused. */
async function getOf(learner, what) {
  try {
    return { found: await get(`learners/${encodeURIComponent(learner.name)}/${what}`) };
  } catch (error) {
    if (!(error instanceof Refused)) throw error;
    return error.status === 404 ? { gone: true } : { error: error.message };
  }
}

/* ---- What is known ----------------------------------------------------------------------------------------------- */

let shown = []; // [{learner, metrics?, error?}] of the last whole round
const figuresKept = new Map(); // name -> {key, settled, found?, error?, gone?}: the last answer of .../metrics
const historiesKept = new Map(); // the same, of .../metrics/history
const lines = new Map(); // name -> number of its line: colour and dash, kept while the learner lives
const address = new URLSearchParams(location.hash.slice(1)); // keeps what the reader chose, to reload and to send on
const choice = {
  figure: Object.hasOwn(FIGURES, address.get("figure")) ? address.get("figure") : "auc",
  learner: address.get("learner"), // null: all of them
};

/** What a learner tells: "classes" (negative and positive) or, if it is an ordinal one, "ranks". */
const toldBy = ({ class_counts }) => (Object.hasOwn(class_counts, "positive") ? "classes" : "ranks");

/** The figures that the chart can draw of `items`, or of the chosen one among them. */
function figuresOf(items) {
  const chosen = items.filter(({ learner }) => choice.learner === null || learner.name === choice.learner);
  const told = new Set(chosen.map(({ learner }) => toldBy(learner)));
  return Object.keys(FIGURES).filter((name) => told.has(FIGURES[name].of));
}

/** The figure that the chart draws: the chosen one, or the first where no learner here has that. */
function figureOf(items) {
  const possible = figuresOf(items);
  return possible.includes(choice.figure) || possible.length === 0 ? choice.figure : possible[0];
}

/** Those of `items` that have the figure drawn. */
function comparableOf(items) {
  const { of } = FIGURES[figureOf(items)];
  return items.filter(({ learner }) => toldBy(learner) === of);
}

/** Those of `items` that the chart draws: the chosen one, or as many as can be told apart. */
function drawnOf(items) {
  if (choice.learner !== null) return items.filter(({ learner }) => learner.name === choice.learner);
  return comparableOf(items).slice(0, COLOURS * DASHES.length);
}

/** One round: the figures of every learner that has moved, and the history of those that are also drawn. */
async function collect() {
  const { learners } = await get("learners");
  const answers = await Promise.all(learners.map((learner) => askOnce(figuresKept, learner, "metrics")));
  const round = learners
    .map((learner, i) => ({ learner, metrics: answers[i].found, error: answers[i].error, gone: answers[i].gone }))
    .filter(({ gone }) => !gone);
  const names = new Set(round.map(({ learner }) => learner.name));
  if (choice.learner !== null && !names.has(choice.learner)) choose({ learner: null });
  await Promise.all(drawnOf(round).map(({ learner }) => askOnce(historiesKept, learner, "metrics/history?by=events")));

  shown = round; // the round is whole
  for (const kept of [figuresKept, historiesKept, lines]) {
    for (const name of kept.keys()) if (!names.has(name)) kept.delete(name);
  }
  for (const name of names) if (!lines.has(name)) lines.set(name, firstFree(new Set(lines.values())));
}

/** The kept answer while the learner's log stands still, else a new one.
 *
 * A new answer is asked for once more in the next round: with several nodes behind one address, the one that named the
 * learner's position may have been a moment ahead of the one that gave the figures.
 */
async function askOnce(kept, learner, what) {
  const key = JSON.stringify([learner.position, learner.events, learner.config]); // deleted and created anew differs
  const before = kept.get(learner.name);
  const same = before?.key === key;
  if (same && before.settled) return before;
  const answer = await getOf(learner, what);
  const now = { key, settled: same && answer.found !== undefined, ...answer };
  kept.set(learner.name, now);
  return now;
}

/** The colour, by its number in the style sheet, and the dash of a learner's line. */
function lineOf({ name }) {
  const line = lines.get(name);
  return { number: line % COLOURS, dash: DASHES[Math.floor(line / COLOURS) % DASHES.length] };
}

function firstFree(taken) {
  let n = 0;
  while (taken.has(n)) n += 1;
  return n;
}

/* ---- Rounds ------------------------------------------------------------------------------------------------------ */

let asking = false;
let timer = 0;
let failures = 0; // rounds failed in a row
let failure = ""; // why the last one did
let nextRound = 0; // when, in milliseconds
let shownAt = null; // the time of the figures on the page

/** One round now, and the next one after it. A hidden page asks nothing: being seen again starts a round. */
async function poll() {
  clearTimeout(timer);
  if (asking || document.hidden) return;
  asking = true;
  let wait = PERIOD;
  try {
    await collect();
    failures = 0;
    shownAt = new Date();
  } catch (error) {
    failures += 1;
    const expected = error instanceof Away || error instanceof Refused;
    failure = expected ? error.message : "an answer could not be read";
    if (!expected) console.error(error);
    wait = Math.max(Math.min(PERIOD * 2 ** (failures - 1), LONGEST_WAIT), error.wait ?? 0);
  }
  asking = false;
  nextRound = Date.now() + wait * 1000;
  timer = setTimeout(poll, wait * 1000);
  if (failures === 0) show();
  showConnection();
}

function showConnection() {
  const away = failures > 0;
  byId("connection").dataset.state = away ? "away" : shownAt ? "live" : "loading";
  write(byId("state"), away ? `${failure},` : shownAt ? "live" : "connecting …");
  const time = shownAt?.toLocaleTimeString("en-GB"); // HH:MM:SS
  const seconds = Math.max(0, Math.ceil((nextRound - Date.now()) / 1000));
  const kept = time ? `; showing figures from ${time}` : "";
  write(byId("since"), away ? `retrying ${seconds > 0 ? `in ${seconds} s` : "now"}${kept}` : (time ?? ""));
  byId("retry").hidden = !away;
  byId("waiting").hidden = shownAt !== null;
}

/* ---- Showing ----------------------------------------------------------------------------------------------------- */

function show() {
  byId("empty").hidden = shown.length > 0;
  byId("history").hidden = shown.length === 0;
  arrange(byId("learners"), "learner-card", shown, fillCard);
  const listed = comparableOf(shown);
  arrange(byId("legend"), "legend-item", listed.length > 1 || choice.learner !== null ? listed : [], fillLegendItem);
  showFigures();
  draw();
}

/** Offer the figures that can be drawn, and mark the one that is. */
function showFigures() {
  const possible = figuresOf(shown);
  const drawn = figureOf(shown);
  for (const label of document.querySelectorAll("#figure label")) {
    const input = label.querySelector("input");
    label.hidden = !possible.includes(input.value);
    input.checked = input.value === drawn;
  }
}

/** Make the children of `parent` match `items` by name; a kept child stays the same element, and keeps the focus. */
function arrange(parent, template, items, fill) {
  const before = new Map([...parent.children].map((child) => [child.dataset.learner, child]));
  items.forEach((item, i) => {
    const { name } = item.learner;
    const child = before.get(name) ?? byId(template).content.firstElementChild.cloneNode(true);
    before.delete(name);
    child.dataset.learner = name;
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
    const { number, dash } = lineOf(item.learner);
    Object.assign(child.querySelector(".swatch").dataset, { line: number, dash });
    fill(child, item);
  });
  for (const child of before.values()) child.remove();
}

/** Set text only where it differs: a selection or a screen reader's place is not disturbed. */
function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

const count = (n) => n.toLocaleString("en");
const fixed = (digits) => (x) => x.toFixed(digits);
const partOf = (n, all) => (n < all ? `${count(n)} of ${count(all)}` : count(all));
const short = (x) => String(Number(x.toPrecision(3)));

function fillLegendItem(item, { learner }) {
  const button = item.querySelector("button");
  write(item.querySelector("[data-text=name]"), learner.name);
  button.title = learner.name;
  button.setAttribute("aria-pressed", String(choice.learner === learner.name));
}

function fillCard(card, { learner, metrics, error }) {
  const at = (text) => card.querySelector(`[data-text=${text}]`);
  const put = (text, value) => write(at(text), value);
  put("name", learner.name);
  put("algorithm", learner.config.algorithm);
  const trouble = learner.failed ?? (learner.ready ? null : `not ready: ${learner.not_ready ?? "no reason given"}`);
  put("readiness", trouble ?? "ready");
  card.dataset.ready = trouble === null;

  fillFit(at("fit"), learner.fit);
  const told = toldBy(learner);
  for (const part of card.querySelectorAll("[data-of]")) part.hidden = part.dataset.of !== told;

  // Counts are in both documents; those of the metrics belong to the figures beside them.
  put("events", count((metrics ?? learner).events));
  put("window", metrics ? `window ${partOf(metrics.window.events, metrics.window.size)}` : "");

  const reasons = new Map(); // reason -> the figures that it leaves undefined
  const figure = (text, pointer, format, label) => {
    const value = metrics && pointer.split("/").slice(1).reduce((part, key) => part?.[key], metrics);
    const missing = value === null || value === undefined;
    if (missing && metrics) {
      const reason = metrics.undefined?.[pointer] ?? "no reason given";
      reasons.set(reason, [...(reasons.get(reason) ?? []), label]);
      at(text).title = reason;
    } else {
      at(text).removeAttribute("title");
    }
    return missing ? NOTHING : format(value);
  };
  if (told === "ranks") fillRanks(card, metrics, put, figure);
  else fillClasses(learner, metrics, put, figure);

  const notes = [...reasons].map(([reason, labels]) => `${labels.join(", ")}: ${reason}`);
  if (error) notes.unshift(`No figures: ${error}`);
  const stale = Math.round(learner.stale_seconds);
  if (stale >= STALE) notes.unshift(`No news from the store for ${stale} s`);
  const list = card.querySelector(".notes");
  while (list.children.length > notes.length) list.lastElementChild.remove();
  while (list.children.length < notes.length) list.append(document.createElement("li"));
  notes.forEach((note, i) => write(list.children[i], note));
}

function fillClasses(learner, metrics, put, figure) {
  const { negative, positive } = (metrics ?? learner).class_counts;
  put("negative", count(negative));
  put("positive", count(positive));
  put("share", negative + positive > 0 ? `${short((100 * positive) / (negative + positive))} % positive` : "");
  put("auc", figure("auc", "/window/auc", fixed(4), "AUC"));
  put("f1", figure("f1", "/window/f1", fixed(3), "F1"));
  put("precision", figure("precision", "/window/precision", fixed(3), "precision"));
  put("recall", figure("recall", "/window/recall", fixed(3), "recall"));
  put("threshold", figure("threshold", "/threshold", short, "threshold"));
  const sinceStart = figure("auc-since", "/since_start/auc", fixed(4), "AUC since start");
  const around = Math.ceil((metrics?.since_start.auc_error ?? 0) * 1e4) / 1e4; // up: it is a bound
  const bound = around > 0 && sinceStart !== NOTHING ? ` ±\u00a0${fixed(4)(around)}` : "";
  put("auc-since", `since start ${sinceStart}${bound}`);
  put("f1-since", `since start ${figure("f1-since", "/since_start/f1", fixed(3), "F1 since start")}`);
}

function fillRanks(card, metrics, put, figure) {
  put("mae", figure("mae", "/window/mae", fixed(4), "MAE"));
  put("accuracy", figure("accuracy", "/window/accuracy", fixed(3), "accuracy"));
  put("mse", figure("mse", "/window/mse", fixed(4), "MSE"));
  put("mae-since", `since start ${figure("mae-since", "/since_start/mae", fixed(4), "MAE since start")}`);
  const accuracy = figure("accuracy-since", "/since_start/accuracy", fixed(3), "accuracy since start");
  put("accuracy-since", `since start ${accuracy}`);
  put("mse-since", `since start ${figure("mse-since", "/since_start/mse", fixed(4), "MSE since start")}`);
  const holder = card.querySelector(".confusion");
  holder.hidden = !(metrics?.window.events > 0);
  if (!holder.hidden) fillConfusion(holder.querySelector("table"), metrics.window.confusion);
}

/** When the embedding, or a batch algorithm's model, was last fitted, and how the next fit does. That none has been
 * made yet is what `not_ready` says. */
function fillFit(element, fit) {
  const parts = [];
  if (fit?.events > 0) parts.push(`fitted after ${count(fit.events)} events`);
  if (fit?.running) parts.push("a fit is running");
  if (fit?.failed) parts.push(`the last fit failed: ${fit.failed}`);
  element.hidden = parts.length === 0;
  element.dataset.failed = Boolean(fit?.failed);
  write(element, parts.join("; "));
}

/** Rows are true ranks, columns predicted ones; the darker a cell, the larger its part of the row. */
function fillConfusion(table, confusion) {
  const cell = (name, scope) => {
    const made = document.createElement(name);
    if (scope) made.scope = scope;
    return made;
  };
  if (table.tBodies[0].rows.length !== confusion.length) {
    const ranks = confusion.map((_, i) => i + 1);
    const top = document.createElement("tr");
    top.append(cell("td"), ...ranks.map(() => cell("th", "col")));
    const rows = ranks.map(() => {
      const row = document.createElement("tr");
      row.append(cell("th", "row"), ...ranks.map(() => cell("td")));
      return row;
    });
    table.style.setProperty("--ranks", String(ranks.length));
    table.tHead.replaceChildren(top);
    table.tBodies[0].replaceChildren(...rows);
    for (const rank of ranks) {
      write(top.cells[rank], String(rank));
      write(rows[rank - 1].cells[0], String(rank));
    }
  }
  confusion.forEach((counts, i) => {
    const all = counts.reduce((sum, n) => sum + n, 0);
    counts.forEach((n, k) => {
      const at = table.tBodies[0].rows[i].cells[k + 1];
      write(at, count(n));
      at.classList.toggle("right", i === k);
      at.classList.toggle("none", n === 0);
      at.style.setProperty("--share", all > 0 ? (n / all).toFixed(3) : "0");
    });
  });
}

/* ---- The chart --------------------------------------------------------------------------------------------------- */

/** Plotly's bundle is large: it loads beside the first rounds, and the figures do not wait for it. */
const library = new Promise((resolve, reject) => {
  const script = document.createElement("script");
  script.src = byId("chart").dataset.library;
  script.onload = () => resolve(globalThis.Plotly);
  script.onerror = () => reject(new Error("the chart library could not be loaded"));
  document.head.append(script);
});

/** Plotly reads labels as a little HTML of its own: escaped, a name stays what it is. */
const plain = (text) => text.replaceAll("&", "&amp;").replaceAll("<", "&lt;").replaceAll(">", "&gt;");

const colour = (name) => getComputedStyle(document.documentElement).getPropertyValue(name).trim();

async function draw() {
  const drawn = figureOf(shown);
  const { title, label, digits } = FIGURES[drawn];
  const of = drawnOf(shown);
  const all = comparableOf(shown).length;
  const part = of.length < all ? ` (the first ${of.length} of ${all} learners)` : "";
  write(byId("history-title"), `${title}, over events${choice.learner === null ? part : `: ${choice.learner}`}`);
  const traces = of.map(({ learner }) => {
    const points = historiesKept.get(learner.name)?.found?.points ?? [];
    const { number, dash } = lineOf(learner);
    return {
      name: plain(learner.name),
      x: points.map((point) => point.events + point.served), // what points are counted by: none has another's place
      y: points.map((point) => point[drawn] ?? null),
      mode: points.length < 3 ? "lines+markers" : "lines", // a lone point has no line
      line: { color: colour(`--line-${number}`), dash, width: 2 },
      customdata: points.map((point) => [point.events, point.served]),
      hovertemplate:
        `%{fullData.name}<br>${label} %{y:${digits}} after %{customdata[0]:,} events learnt, ` +
        "%{customdata[1]:,} served<extra></extra>",
    };
  });
  const something = traces.some(({ y }) => y.some((value) => value !== null));
  byId("chart").hidden = !something;
  byId("no-chart").hidden = something;
  write(byId("no-chart"), `No ${label} to draw yet.`);
  if (!something) return;

  let Plotly;
  try {
    Plotly = await library;
  } catch (error) {
    byId("chart").hidden = true;
    byId("no-chart").hidden = false;
    write(byId("no-chart"), `No chart: ${error.message}; reload the page to try again.`);
    return;
  }
  // Where one learner is far ahead of another, a linear axis would press the others into its first pixels.
  const ends = traces.map(({ x }) => x.at(-1)).filter((events) => events > 0);
  const uneven = Math.max(...ends) > UNEVEN * Math.min(...ends);
  const rule = colour("--rule");
  const axis = { gridcolor: rule, linecolor: rule, zerolinecolor: rule, automargin: true };
  const family = getComputedStyle(document.body).fontFamily;
  const layout = {
    showlegend: false,
    margin: { l: 8, r: 12, t: 8, b: 8 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family, size: 12, color: colour("--quiet") },
    xaxis: {
      ...axis,
      type: uneven ? "log" : "linear",
      title: { text: `events learnt and served${uneven ? " (log scale)" : ""}`, font: { size: 12 } },
      tickformat: uneven ? "~s" : ",",
      nticks: 6,
    },
    yaxis: { ...axis, nticks: 6 },
    hoverlabel: {
      bgcolor: colour("--panel"),
      bordercolor: colour("--quiet"),
      font: { family, color: colour("--text") },
    },
    dragmode: matchMedia("(pointer: coarse)").matches ? false : "zoom", // a finger scrolls the page
    uirevision: `${drawn} ${choice.learner} ${uneven}`, // a zoom outlives new points
  };
  await Plotly.react(byId("chart"), traces, layout, { displayModeBar: false, responsive: true });
}

/* ---- What the reader does ---------------------------------------------------------------------------------------- */

/** Take a new choice, and keep it in the address. */
function choose(change) {
  Object.assign(choice, change);
  const kept = new URLSearchParams();
  if (choice.figure !== "auc") kept.set("figure", choice.figure);
  if (choice.learner !== null) kept.set("learner", choice.learner);
  history.replaceState(null, "", `${location.pathname}${kept.size > 0 ? `#${kept}` : ""}`);
}

byId("figure").addEventListener("change", (event) => {
  choose({ figure: event.target.value });
  show(); // the legend too: it lists the learners that have the figure
  poll();
});

byId("legend").addEventListener("click", (event) => {
  const name = event.target.closest("[data-learner]")?.dataset.learner;
  if (name === undefined) return;
  choose({ learner: name === choice.learner ? null : name });
  show(); // at once with what is known; the round brings what is not
  poll();
});

byId("retry").addEventListener("click", poll);
document.addEventListener("visibilitychange", poll);
addEventListener("online", poll);
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
setInterval(() => failures > 0 && showConnection(), 1000);

for (const base of document.querySelectorAll("[data-base]")) base.textContent = new URL(".", location.href).href;
poll();
