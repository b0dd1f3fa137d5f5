/* The learners of a group on the same events: AUCs, differences with intervals, and the verdict in words. */

import { watchScope } from "./access.js";
import { rangeOf } from "./address.js";
import { get, groupPath, learnerPath, Refused } from "./api.js";
import { Chart, drawnAs, legend, line, plain, widened } from "./charts.js";
import { arrange, el, freshId, write } from "./dom.js";
import { between, count, counted, metricAt, fixed, local, NOTHING, share, signed, wholeMoment } from "./format.js";
import { follow, RARELY, rounds } from "./live.js";
import { askGroup } from "./new_group.js";
import { RangeFields } from "./range.js";
import { drawScale, drawWhisker, scaleHead, whisker } from "./sparklines.js";
import { odds, summaryOf, verdictParts, verdictsOf, writeVerdict } from "./verdicts.js";

const HISTORY = 10; // seconds between looks at the learners' histories, while events come
const DASHES = ["solid", "dash", "dot"];
const COLOURS = 6;
const NO_ENDS = ["", ""]; // of a scale on which nothing is

export function show(main, place, signal) {
  if (place.name === null) new List(main, signal);
  else new Group(main, place, signal);
}

/* ---- The groups -------------------------------------------------------------------------------------------------- */

class List {
  constructor(main, signal) {
    document.title = "Compare – rarestream";
    this.list = el("ul", { class: "links" });
    this.note = el("p", { class: "message", text: "The groups appear here as soon as the server has answered." });
    const id = freshId();
    const add = el("button", {
      type: "button",
      class: "primary",
      text: "New group …",
      "aria-describedby": id,
      on: { click: askGroup },
    });
    const why = el("p", { id, class: "withheld", hidden: true });
    watchScope("admin", signal, (reason) => {
      add.disabled = reason !== null;
      why.hidden = reason === null;
      write(why, reason === null ? "" : `No group can be made here: ${reason}`);
    });
    main.append(
      el("header", { class: "title" }, el("h1", { text: "Compare" }), add),
      why,
      el("p", {
        class: "quiet",
        text:
          "A group is two to eight learners on one stream: each event that is sent to the group is learnt by all of " +
          "them, and their earlier predictions are compared.",
      }),
      this.note,
      this.list,
    );
    watchScope("read", signal, (reason) => {
      if (reason !== null) write(this.note, `No group can be shown: ${reason}.`);
    });
    const events = { groups: (all) => this.#show(all) };
    follow("stream?learners=false", events, async () => events.groups(await get("groups?tests=true", { signal })), signal);
  }

  #show({ groups, unavailable }) {
    const left = Object.entries(unavailable).map(([name, why]) => ({
      name,
      failed: why,
      config: { learners: [] },
      events: 0,
      tests: null,
    }));
    const all = [...groups, ...left];
    this.note.hidden = all.length > 0;
    write(this.note, "No groups yet. Learners are compared in a group: make one of two learners or more.");
    arrange(
      this.list,
      all,
      ({ name }) => name,
      ({ name }) =>
        el(
          "li",
          { class: "panel" },
          el("a", { href: `#/compare/${encodeURIComponent(name)}`, text: name }),
          el("span"),
          el("small"),
          el("p", { class: "finding" }, ...verdictParts()),
        ),
      (item, { name, config, events, failed, tests }) => {
        const [, learners, state, verdict] = item.children;
        write(learners, config.learners.join(", "));
        write(state, failed ?? `${counted(events, "event")} compared`);
        verdict.hidden = tests === null;
        if (tests !== null) writeVerdict(verdict, summaryOf(name, events, tests, config.alpha));
      },
    );
  }
}

/* ---- One group --------------------------------------------------------------------------------------------------- */

class Group {
  #latest = null; // the newest comparison
  #source = null; // the comparison whose histories are drawn
  #histories = [];
  #learners = [];
  #by = null; // what the chart's axis goes by, once that is known

  /** `place` keeps the range of the chart in the address. */
  constructor(main, place, signal) {
    const { name } = place;
    document.title = `${name} – rarestream`;
    this.name = name;
    this.place = place;
    this.signal = signal;
    this.verdicts = el("ul", { class: "verdicts", "aria-live": "polite" });
    this.facts = el("p", { class: "quiet" });
    this.aucs = el("tbody");
    this.differences = el("tbody");
    this.aucScale = scaleHead();
    this.differenceScale = scaleHead();
    this.key = el("div");
    this.waiting = el("p", {
      class: "message",
      text: "The comparison appears here as soon as the server has answered.",
    });
    this.chart = new Chart({
      name: "auc",
      title: "AUC over time",
      note: "of each learner's own window",
      signal,
      onRange: (range) => this.fields.choose(range),
    });
    this.fields = new RangeFields(place.query, (bounds) => {
      place.keep({ by: null, ...bounds });
      this.#draw();
    });
    this.chart.element.querySelector("figcaption").append(this.fields.element, this.key);
    const table = (title, names, heads, body) =>
      el(
        "section",
        { class: "panel" },
        el("h2", { text: title }),
        el(
          "div",
          { class: "scrolls", tabindex: "0", role: "group", "aria-label": title },
          el(
            "table",
            { class: `plain intervals ${names}` },
            el(
              "thead",
              {},
              el(
                "tr",
                {},
                heads.map((head) =>
                  typeof head === "string"
                    ? el("th", { scope: "col", class: head.endsWith("#") ? "number" : null, text: head.replace("#", "") })
                    : head,
                ),
              ),
            ),
            body,
          ),
        ),
      );
    this.content = el(
      "div",
      { class: "stack", hidden: true },
      el("section", { class: "panel" }, el("h2", { text: "Which is better" }), this.verdicts, this.facts),
      table("AUC on the same events", "", ["Learner", "AUC#", "95 % interval", this.aucScale], this.aucs),
      table(
        "Differences of AUC",
        "pairs",
        ["A minus B", "Difference#", "95 % interval", this.differenceScale, "Evidence for A#", "Evidence for B#"],
        this.differences,
      ),
      this.chart.element,
    );
    main.append(
      el(
        "header",
        { class: "title" },
        el("p", {}, el("a", { href: "#/compare", text: "All groups" })),
        el("h1", { text: name }),
      ),
      this.waiting,
      this.content,
    );
    watchScope("read", signal, (reason) => {
      if (reason !== null) write(this.waiting, `The comparison cannot be shown: ${reason}.`);
    });
    const path = groupPath(name, "/compare");
    const handlers = {
      comparison: (comparison) => this.#take(comparison),
      gone: ({ detail }) => {
        this.content.hidden = true;
        this.waiting.hidden = false;
        write(this.waiting, detail);
      },
    };
    const poll = async () => handlers.comparison(await get(path, { signal }));
    rounds(() => follow(`${path}/stream`, handlers, poll, signal), RARELY, signal); // anew, should the group be gone
    this.histories = rounds(
      () => this.#look(),
      HISTORY,
      signal,
      (error) => (error instanceof Refused ? HISTORY : null),
    );
  }

  #take(comparison) {
    const first = this.#latest === null;
    this.#latest = comparison;
    this.waiting.hidden = true;
    this.content.hidden = false;
    this.#show(comparison);
    if (first) this.histories();
  }

  /** Ask for the histories, and for the present, with which each ends, if there was anything new since. */
  async #look() {
    if (this.#latest === this.#source) return false;
    const comparison = this.#latest;
    const present = comparison.learners.filter((name) => !comparison.gone.includes(name));
    this.#histories = await Promise.all(
      present.map(async (name) => {
        const [{ by, points }, { events, clock, window }] = await Promise.all(
          ["/metrics/history", "/metrics"].map((what) => get(learnerPath(name, what), { signal: this.signal })),
        );
        return { name, by, points: events > 0 ? [...points, { events, clock, auc: window.auc }] : points };
      }),
    );
    this.#source = comparison;
    this.#draw();
    return true;
  }

  #show(comparison) {
    const { window, tests, learners, alpha, events, gone, clock } = comparison;
    arrange(
      this.verdicts,
      verdictsOf(comparison.name, events, tests, alpha, window.differences),
      ({ key }) => key,
      () => el("li", {}, ...verdictParts()),
      writeVerdict,
    );
    const { negative, positive } = window.class_counts;
    const last = window.events > 0 ? `the last ${count(window.events)}` : "none";
    write(
      this.facts,
      [
        `${counted(events, "event")} compared, ${last} of them in the window`,
        `(${count(negative)} negative, ${count(positive)} positive).`,
        `Two equal learners get a verdict with a probability of at most ${share(alpha)}, however often one looks.`,
        gone.length > 0 ? `No longer there: ${gone.join(", ")}; nothing more can be compared.` : "",
        clock === null ? "" : `The group's clock is at ${wholeMoment(clock)}.`,
      ]
        .filter(Boolean)
        .join(" "),
    );
    this.#areas(comparison, learners, window);
    this.#pairs(comparison, window, tests);
    this.#learners = learners;
    this.#draw();
  }

  #areas(comparison, learners, window) {
    const ends = learners.flatMap((name) => window.auc[name].interval ?? []);
    const scale = {
      low: Math.max(0, Math.min(...ends, 0.99) - 0.02),
      high: Math.min(1, Math.max(...ends, 0.5) + 0.02),
    };
    drawScale(this.aucScale, ...(ends.length > 0 ? [scale.low, scale.high].map(fixed(2)) : NO_ENDS));
    const rows = learners.map((name) => ({ name, ...window.auc[name] }));
    arrange(
      this.aucs,
      rows,
      ({ name }) => name,
      ({ name }) =>
        el(
          "tr",
          {},
          el("th", { scope: "row" }, el("a", { href: `#/learners/${encodeURIComponent(name)}`, text: name })),
          el("td", { class: "number" }),
          el("td"),
          el("td", {}, whisker()),
        ),
      (row, { name, auc, interval }) => {
        write(row.cells[1], auc === null ? NOTHING : fixed(4)(auc));
        write(
          row.cells[2],
          interval === null
            ? metricAt(comparison, `/window/auc/${name}/${auc === null ? "auc" : "interval"}`).reason
            : between(interval, 4),
        );
        drawWhisker(row.querySelector("svg"), auc, interval, scale);
      },
    );
  }

  #pairs(comparison, window, tests) {
    const ends = window.differences.flatMap(({ interval }) => interval ?? []);
    const reach = Math.max(...ends.map(Math.abs), 0.01) * 1.1;
    drawScale(this.differenceScale, ...(ends.length > 0 ? [-reach, reach].map(signed(3)) : NO_ENDS));
    const rows = window.differences.map((difference, i) => ({ ...difference, ...tests[i].evidence, place: i }));
    arrange(
      this.differences,
      rows,
      ({ a, b }) => `${a} ${b}`,
      ({ a, b }) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", text: `${a} − ${b}` }),
          el("td", { class: "number", data: { title: "Difference" } }),
          el("td", { data: { title: "95 % interval" } }),
          el("td", {}, whisker()),
          el("td", { class: "number", data: { title: "Evidence for A" } }),
          el("td", { class: "number", data: { title: "Evidence for B" } }),
        ),
      (row, { difference, interval, place, a_better: forA, b_better: forB }) => {
        write(row.cells[1], difference === null ? NOTHING : signed(4)(difference));
        const pointer = `/window/differences/${place}/${difference === null ? "difference" : "interval"}`;
        write(row.cells[2], interval === null ? metricAt(comparison, pointer).reason : interval.map(signed(4)).join(" to "));
        drawWhisker(row.querySelector("svg"), difference, interval, { low: -reach, high: reach, zero: 0 });
        write(row.cells[4], `${odds(forA)} to 1`);
        write(row.cells[5], `${odds(forB)} to 1`);
      },
    );
  }

  #draw() {
    const learners = this.#learners;
    const histories = this.#histories.filter(({ points }) => points.length > 0);
    const clocked = histories.length > 0 && histories.every(({ by }) => by === "clock");
    const lineOf = (name) => {
      const n = learners.indexOf(name);
      return { number: n % COLOURS, dash: DASHES[(n + Math.floor(n / COLOURS)) % DASHES.length] };
    };
    const places = histories
      .flatMap(({ points }) => points.map((point) => (clocked ? point.clock : point.events)))
      .filter((place) => place !== null); // the first rows may be older than any time that is known
    const by = clocked ? "clock" : "events";
    const selection = rangeOf(this.place.query, by, places);
    const range = selection ?? widened(places, by);
    if (histories.length > 0) { // before, the axis is not known
      if (this.#by !== by) this.fields.show(by);
      this.#by = by;
      this.fields.showUnread(places);
    }
    this.key.replaceChildren(legend(learners.map((name) => ({ text: name, ...lineOf(name) }))));
    this.chart.draw(() =>
      histories.length === 0
        ? { nothing: "Nothing to draw: no events yet." }
        : {
            traces: histories.map(({ name, points }) => ({
              name: plain(name),
              x: points.map((point) => (clocked ? local(point.clock) : point.events)),
              y: points.map((point) => point.auc),
              ...drawnAs(points.map((point) => point.auc)),
              line: line(lineOf(name).number, lineOf(name).dash),
              hovertemplate: "%{y:.4f}",
            })),
            layout: {
              xaxis: {
                fixedrange: false,
                autorange: range === null,
                ...(clocked ? { type: "date" } : { title: "labelled events", tickformat: "," }),
                ...(range === null ? {} : { range: range.map((place) => (clocked ? local(place) : place)) }),
              },
              uirevision: JSON.stringify(selection), // a zoom outlives new points
            },
            words: histories
              .map(({ name, points }) => `${name} ${points.at(-1).auc?.toFixed(4) ?? "undefined"}`)
              .join(", "),
          },
    );
  }
}
