/* The groups above the overview: the learners of each side by side by the AUC of their windows, and which is better. */

import { arrange, el, put, write } from "./dom.js";
import { counted, metricAt, fixed, intervalWords, NOTHING } from "./format.js";
import { stateOf } from "./learner_rows.js";
import { drawWhisker, whisker } from "./sparklines.js";
import { summaryOf, verdictParts, writeVerdict } from "./verdicts.js";

export class Groups {
  #groups = [];
  #list = el("div", { class: "groups" });

  constructor() {
    this.element = el(
      "section",
      { "aria-labelledby": "groups-title", hidden: true },
      el("h2", { id: "groups-title", text: "Groups" }),
      this.#list,
    );
  }

  /** The documents of `GET /v1/groups?tests=true`. */
  take(groups) {
    this.#groups = groups;
  }

  /** The learners' metrics, by name. */
  show(rows) {
    this.element.hidden = this.#groups.length === 0;
    arrange(
      this.#list,
      this.#groups,
      ({ name }) => name,
      makeGroup,
      (card, group) => updateGroup(card, group, rows),
    );
  }
}

function makeGroup({ name }) {
  return el(
    "article",
    { class: "panel group" },
    el("h3", {}, el("a", { href: `#/compare/${encodeURIComponent(name)}`, text: name }), el("small")),
    el("p", { class: "quiet", text: "AUC of each, in its own window" }),
    el("ul", { "aria-label": "AUC of each, in its own window" }),
    el("p", { class: "finding" }, ...verdictParts()),
  );
}

function updateGroup(card, { name, config, events, failed, tests }, rows) {
  write(card.querySelector("small"), failed ?? `${counted(events, "event")} compared`);
  const aucOf = (learner) => rows.get(learner)?.window?.auc ?? null;
  writeVerdict(card.querySelector(".finding"), summaryOf(name, events, tests, config.alpha, aucOf));
  const members = config.learners.map((name) => ({ name, row: rows.get(name), window: rows.get(name)?.window }));
  const ends = members.flatMap(
    ({ window }) => window?.auc_interval ?? (Number.isFinite(window?.auc) ? [window.auc] : []),
  );
  const low = Math.max(0, Math.min(0.9, ...ends) - 0.02);
  const high = Math.min(1, Math.max(...ends, low + 0.1) + 0.02);
  arrange(
    card.querySelector("ul"),
    members,
    ({ name }) => name,
    makeMember,
    (item, { row, window }) => {
      const hasAuc = Number.isFinite(window?.auc);
      write(item.querySelector("span"), hasAuc ? fixed(3)(window.auc) : NOTHING);
      put(item, "title", hasAuc ? intervalWords(row) : `no AUC to show: ${whyNone(row)}`);
      drawWhisker(item.querySelector("svg"), window?.auc ?? null, window?.auc_interval ?? null, { low, high });
    },
  );
}

/** Why a learner has no AUC: by its metrics, or as there are none of it. */
function whyNone(row) {
  if (row?.window !== undefined) return metricAt(row, "/window/auc").reason;
  return (row !== undefined && stateOf(row).text) || "there is no such learner";
}

const makeMember = ({ name }) =>
  el("li", {}, el("a", { href: `#/learners/${encodeURIComponent(name)}`, text: name }), whisker(), el("span"));
