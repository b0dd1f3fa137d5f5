/* One learner: its metrics live, its curves, its weights; a form to score an event; what can be done to it. */

import { access, watchScope } from "./access.js";
import { Away, get, learnerPath, reasonOf, Refused } from "./api.js";
import { Actions } from "./actions.js";
import { Confusion, Curves } from "./curves.js";
import { announce } from "./dialogs.js";
import { arrange, el, put, write } from "./dom.js";
import { ago, bytes, count, counted, duration, moment, wholeMoment } from "./format.js";
import { MetricTable, Tiles } from "./metrics.js";
import { alarmWords } from "./alarm_words.js";
import { Alarms } from "./alarms.js";
import { Health } from "./health.js";
import { Histories } from "./history.js";
import { absent, connection, follow, RARELY, rounds } from "./live.js";
import { Scoring } from "./scoring.js";
import { Snapshots } from "./snapshots.js";
import { Fields } from "./fields.js";
import { Segments } from "./segments.js";
import { Members } from "./members.js";
import { Thresholds } from "./thresholds.js";
import { Weights } from "./weights.js";

const DOCUMENT = 4; // seconds between looks at the learner's document
const CURVES = 3; // seconds between looks at the curves, while events come
const STALE = 5; // seconds without news from the store that are worth telling

export async function show(main, place, signal) {
  document.title = `${place.name} – rarestream`;
  const title = el("h1", { text: place.name });
  const waiting = el("p", { class: "message", text: "The metrics appear here as soon as the server has answered." });
  const header = el(
    "header",
    { class: "title" },
    el("p", {}, el("a", { href: place.overview, text: "All learners" })),
    title,
  );
  main.append(header, waiting);
  watchScope("read", signal, (reason) => {
    if (reason === null) return;
    write(
      waiting,
      `The page cannot be shown: ${reason}. A key that may predict has events scored by rarestream predict, or over HTTP.`,
    );
  });
  let page = null;
  let ends = null; // of the page, where the learner goes and perhaps comes again
  const gone = (why) => {
    ends?.abort();
    page = ends = null;
    if (header.isConnected) main.replaceChildren(nobody(place.name, why));
  };
  const again = rounds(
    async () => {
      const learner = await get(learnerPath(place.name), { signal });
      if (page === null) {
        ends = new AbortController();
        main.replaceChildren(header);
        page = new Page(main, learner, place, AbortSignal.any([signal, ends.signal]), gone, () => again());
        page.start();
      }
      page.document(learner);
    },
    DOCUMENT,
    signal,
    (error) => {
      if (absent(error)) {
        gone(error.message);
        return RARELY;
      }
      if (page === null && !(error instanceof Away) && access.lacks("read") === null) {
        write(waiting, `No figures: ${reasonOf(error)}`);
      }
      return null;
    },
  );
}

const nobody = (name, why) =>
  el(
    "section",
    { class: "message", role: "alert" },
    el("h1", { text: `No learner ${name}` }),
    el("p", { text: why }),
    el("p", {}, el("a", { href: "#/", text: "To the overview" })),
  );

class Page {
  #moved = true; // events have come since the curves were drawn
  #learner = null; // its document

  constructor(main, learner, place, signal, gone, again) {
    this.name = learner.name;
    this.signal = signal;
    this.gone = gone;
    this.ranks = !Object.hasOwn(learner.class_counts, "positive");
    this.state = el("p", { class: "readiness" });
    this.facts = el("dl", { class: "facts" });
    this.actions = new Actions(learner, signal, again);
    this.health = new Health(this.ranks);
    this.tiles = new Tiles(this.ranks);
    this.histories = new Histories(this.ranks, learner.config.window, place, signal);
    this.alarms = new Alarms(learner, signal, (alarms, annotations) => {
      this.histories.mark(alarms, annotations);
      this.health.take({ alarms });
    });
    this.curves = this.ranks ? null : new Curves(signal);
    this.confusion = this.ranks ? new Confusion() : this.curves.confusion;
    this.table = new MetricTable(this.ranks);
    this.snapshots = new Snapshots(learner, signal, again);
    this.scoring = new Scoring(learner, signal);
    this.thresholds = this.ranks ? null : new Thresholds(learner, signal, (settings) => this.actions.applyThreshold(settings));
    this.segments = this.ranks ? null : new Segments(learner, signal);
    this.weights = learner.members === null ? new Weights(learner, signal) : new Members();
    const named = learner.config.features.kind === "named";
    this.fields = named ? new Fields(learner, signal, (fields) => this.scoring.suggest(fields)) : null;
    main.append(
      el("div", { class: "about" }, this.state, this.actions.element),
      this.health.element,
      this.ranks ? "" : el("p", {}, el("a", { href: `#/alerts/${encodeURIComponent(this.name)}`, text: "Alerts and scored events" })),
      this.tiles.element,
      section("Over time", this.histories.fields.element, this.histories.element),
      ...(this.curves === null ? [] : [section("The window now", null, this.curves.element)]),
      el(
        "div",
        { class: "columns" },
        this.confusion.element,
        this.alarms.element,
      ),
      ...(this.thresholds === null ? [] : [this.thresholds.element]),
      ...(this.segments === null ? [] : [this.segments.element]),
      this.scoring.element,
      el("div", { class: "columns" }, this.weights.element, this.snapshots.element),
      ...(this.fields === null ? [] : [this.fields.element]),
      this.table.element,
      el("section", { class: "panel" }, el("h3", { text: "For operators" }), this.facts),
    );
  }

  start() {
    const { signal, name } = this;
    connection.addEventListener("change", () => this.#showState(), { signal });
    const history = async () => {
      const [reply] = await Promise.all([get(learnerPath(name, "/metrics/history"), { signal }), this.alarms.load()]);
      this.histories.take(reply.points, reply.by);
      this.health.take({ points: reply.points });
    };
    const quietly = (work) => work.catch((error) => signal.aborted || reasonOf(error));
    const missed = () => quietly(history());
    const handlers = {
      figures: (metrics) => {
        this.#moved = true;
        this.health.take({ metrics });
        this.tiles.take(metrics);
        this.table.take(metrics);
        this.histories.figures(metrics);
      },
      point: (point) => this.histories.add(point),
      alarm: (alarm) => announce(`Drift alarm: ${name}: ${alarmWords(alarm)}`, { alarm: true }),
      changes: () => quietly(this.alarms.load()),
      reset: missed,
      gone: ({ detail }) => this.gone(detail),
    };
    follow(
      learnerPath(name, "/metrics/stream"),
      handlers,
      async (n) => {
        handlers.figures(await get(learnerPath(name, "/metrics"), { signal }));
        if (n % 3 === 0) missed();
      },
      signal,
    );
    missed();
    rounds(
      async () => {
        if (!this.#moved) return false;
        this.#moved = false;
        const reply = await get(learnerPath(name, "/metrics/curves"), { signal });
        if (this.ranks) this.confusion.ranks(reply.confusion);
        else this.curves.take(reply, this.tiles.threshold);
        return true;
      },
      CURVES,
      signal,
      (error) => (error instanceof Refused ? CURVES : null),
    );
  }

  document(learner) {
    this.#learner = learner;
    this.health.take({ learner });
    this.#showState();
    arrange(
      this.facts,
      factsOf(learner),
      ([term]) => term,
      ([term]) => el("div", {}, el("dt", { text: term }), el("dd")),
      (item, [, text, more]) => {
        write(item.lastChild, text);
        put(item, "title", more ?? null);
      },
    );
    this.table.about(learner);
    this.actions.take(learner);
    this.snapshots.take(learner);
    this.weights.take(learner);
    this.fields?.take(learner);
    this.thresholds?.take(learner);
    this.segments?.take(learner);
  }

  /** Whether it is ready; of a service that does not answer, whether it was when it last did. */
  #showState() {
    if (this.#learner === null) return;
    const { failed, ready, not_ready: why, stale_seconds: seconds } = this.#learner;
    const trouble = failed ?? (ready ? null : `not ready: ${why ?? "no reason given"}`);
    const stale = seconds >= STALE ? `; no news from the store for ${duration(Math.round(seconds))}` : "";
    const well = trouble === null && stale === "";
    const away = connection.state === "away";
    write(this.state, `${away && well ? "was " : ""}${trouble ?? "ready"}${stale}`);
    put(this.state, "data-ready", well);
    put(this.state, "data-past", away && well);
  }
}

const section = (title, tools, content) =>
  el("section", {}, el("header", { class: "bar" }, el("h2", { text: title }), tools), content);

/** What a learner's document tells: [term, text, more]. */
function factsOf({
  config,
  position,
  snapshot,
  state_bytes: size,
  columns,
  pending,
  queued_events: queued,
  fit,
}) {
  const facts = [
    ["Algorithm", config.algorithm],
    ["Features", `${config.features.kind}, ${counted(columns, "column")}`],
    ["Log position", count(position)],
    [
      "Snapshot",
      snapshot === null ? "none yet" : ago(Date.now() / 1000 - snapshot.time),
      snapshot === null ? null : `at position ${count(snapshot.position)}, ${wholeMoment(snapshot.time)}`,
    ],
    ["Memory", bytes(size)],
  ];
  if (config.threshold !== null) facts.push(["Objective", config.threshold.objective]);
  if (queued > 0) facts.push(["Queue", `${counted(queued, "event")}`]);
  if (pending !== null && pending.events > 0)
    facts.push([
      "Remembered",
      `${count(pending.events)} served`,
      `for their labels, and for corrections; ${bytes(pending.bytes)} in the store`,
    ]);
  if (fit !== null) {
    const done = fit.events > 0 ? `after ${counted(fit.events, "event")}` : "none yet";
    facts.push(["Last fit", fit.failed ? `failed: ${fit.failed}` : `${done}${fit.running ? "; one is running" : ""}`]);
  }
  return facts;
}
