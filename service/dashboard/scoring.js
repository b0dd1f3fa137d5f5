/* A form that scores one event and shows what each feature adds. The event goes without an id: it is not remembered. */

import { watchScope } from "./access.js";
import { ask, labelled, learnerPath, pointed, reasonOf, Refused } from "./api.js";
import { el, freshId, once, put, write } from "./dom.js";
import { finite, short, signed } from "./format.js";
import { untilAnswered } from "./live.js";
import { bars, barsTable } from "./weights.js";

const TOP = 12; // contributions shown

const SUGGESTED = 6; // features that are proposed because the learner has had values of them
const drafts = new Map(); // learner's name -> the last event that was scored here, in JSON

/** A value to begin with, of the kind that a field has. */
const valueFor = ({ kind, values, booleans }) =>
  kind === "number" ? 1 : kind === "list" ? [] : values === booleans ? true : "";

/** An event of the learner's kind to begin with: of the features that are declared, or else of the
 * first `fields` that have had values. */
function example({ kind, dim, log = [], categorical = [], text = [] }, fields) {
  if (kind === "dense") return { x: Array(Math.min(dim, 1000)).fill(0) };
  if (kind === "sparse") return { indices: [0], values: [1] };
  const features = {
    ...Object.fromEntries(log.map((name) => [name, 1])),
    ...Object.fromEntries(categorical.map((name) => [name, 0])),
  };
  for (const name of text) features[name] = "";
  if (Object.keys(features).length > 0) return { features };
  const present = fields.filter(({ values }) => values > 0).slice(0, SUGGESTED);
  return { features: Object.fromEntries(present.map((field) => [field.name, valueFor(field)])) };
}

/** The JSON of an event without its id, all numbers as they were typed; null where the browser is too old for that. */
function withoutId(json) {
  if (JSON.rawJSON === undefined) return null;
  const verbatim = (key, value, { source }) => (typeof value === "number" ? JSON.rawJSON(source) : value);
  const { id, ...event } = JSON.parse(json, verbatim);
  return JSON.stringify(event);
}

/** The JSON of what was typed for a field: a number as it stands, if it is one. */
function valueOf(kind, text) {
  const numeric = kind === "numeric" ? Number.isFinite(Number(text)) : /^-?\d+$/.test(text);
  if (!numeric) return JSON.stringify(text);
  return /^-?(0|[1-9]\d*)(\.\d+)?(e[+-]?\d+)?$/i.test(text) ? text : JSON.stringify(Number(text));
}

export class Scoring {
  constructor({ name, config, class_counts: counts }, signal) {
    this.name = name;
    this.features = config.features;
    this.fields = config.features.kind === "table" ? config.features.fields : null;
    this.explains = Object.hasOwn(counts, "positive"); // a rank is not one sum
    this.trouble = el("div", { class: "trouble", role: "alert", hidden: true });
    this.result = el(
      "div",
      { class: "result", role: "status" },
      el("p", {
        class: "quiet",
        text: this.explains
          ? "Shows the score and the contribution of each feature."
          : "Shows the rank and the score.",
      }),
    );
    const title = freshId();
    this.go = el("button", { type: "submit", class: "primary", text: "Score it" });
    this.element = el(
      "section",
      { class: "panel scoring", "aria-labelledby": title },
      el("h3", { id: title, text: "Score an event" }),
      el(
        "form",
        { novalidate: true, on: { submit: (event) => this.#submit(event) } },
        (this.entered = el(
          "fieldset",
          { class: "whole" },
          ...(this.fields === null ? this.#text(config.features) : [this.#inputs()]),
          this.trouble,
          el(
            "p",
            { class: "buttons" },
            this.go,
            el("small", { text: "Nothing is learnt from it, and it is not counted." }),
          ),
        )),
        (this.why = el("p", { class: "withheld", hidden: true })),
      ),
      this.result,
    );
    watchScope("predict", signal, (reason) => {
      this.entered.disabled = reason !== null;
      this.why.hidden = reason === null;
      write(this.why, reason === null ? "" : `No event can be scored here: ${reason}`);
    });
  }

  #text(features) {
    const id = freshId();
    this.area = el("textarea", {
      id,
      rows: "9",
      spellcheck: "false",
      placeholder: features.kind === "named" ? '{"features": {"NAME": 12.5, "NAME": "text"}}' : null,
    });
    this.hint = el("small", { hidden: true, text: "Type its features between the braces: a name and a value each." });
    this.#propose(example(features, []));
    if (drafts.has(this.name)) this.area.value = drafts.get(this.name);
    return [el("label", { for: id, text: "The event in JSON" }), this.area, this.hint];
  }

  /** Put an event into the form. */
  #propose(event) {
    this.proposed = JSON.stringify(event, null, this.features.kind === "dense" ? 0 : 2);
    this.area.value = this.proposed;
    this.hint.hidden = Object.keys(event.features ?? { any: 1 }).length > 0;
  }

  /** The fields that the learner has had: an event of these is proposed where none was sent or typed. */
  suggest(fields) {
    if (this.fields !== null || drafts.has(this.name) || this.area.value !== this.proposed) return;
    if (document.activeElement !== this.area) this.#propose(example(this.features, fields));
  }

  #inputs() {
    this.inputs = this.fields.map(({ name, kind }) => {
      const input = el("input", {
        id: freshId(),
        inputmode: kind === "numeric" ? "decimal" : null,
        autocomplete: "off",
        placeholder: "missing",
      });
      return { name, kind, input };
    });
    return el(
      "div",
      { class: "fields" },
      this.inputs.map(({ name, kind, input }) =>
        el("div", {}, el("label", { for: input.id }, name, el("small", { text: ` ${kind}` })), input),
      ),
    );
  }

  /** What was entered, as the JSON of an event; its numbers stay as they were typed, which may be longer than a
   * number of this language. */
  #json() {
    if (this.fields === null) return this.area.value;
    const members = this.inputs
      .map(({ name, kind, input }) => [name, kind, input.value.trim()])
      .filter(([, , text]) => text !== "")
      .map(([name, kind, text]) => `${JSON.stringify(name)}: ${valueOf(kind, text)}`);
    return `{"features": {${members.join(", ")}}}`;
  }

  #submit(event) {
    event.preventDefault();
    once(this.go, () => this.#score());
  }

  async #score() {
    let json = this.#json();
    let event;
    try {
      event = JSON.parse(json);
    } catch (error) {
      this.#refuse([`this is no JSON: ${error.message}`]);
      return;
    }
    if (typeof event !== "object" || event === null || Array.isArray(event)) {
      this.#refuse(["this is no event: expected an object, {…}"]);
      return;
    }
    if (Object.hasOwn(event, "events")) {
      this.#refuse(["this is a whole request: enter one of its events alone"]);
      return;
    }
    if (Object.hasOwn(event, "id")) {
      json = withoutId(json);
      if (json === null) {
        this.#refuse(["leave its id out: under an id it would be remembered, and counted"]);
        return;
      }
    }
    if (this.features.kind === "named" && !Object.hasOwn(event, "features")) {
      this.#refuse(['this has no "features": put its names and values into that, {"features": {…}}']);
      return;
    }
    try {
      const path = `/predict${this.explains ? `?explain=${TOP}` : ""}`;
      const reply = await ask("POST", learnerPath(this.name, path), { json: `{"events": [${json}]}` });
      drafts.set(this.name, json);
      this.#refuse([]);
      this.#show(reply);
    } catch (error) {
      const errors = error instanceof Refused ? error.errors : [];
      this.#refuse(errors.length > 0 ? errors.map((problem) => this.#words(problem)) : [reasonOf(error)]);
      for (const line of this.trouble.children) untilAnswered(line, error);
      this.#mark(errors.map(({ pointer }) => pointer));
    }
  }

  /** A problem of the event: by the label of its field, or else by where it is in the JSON. */
  #words(problem) {
    const pointer = problem.pointer.replace(/^\/events\/0/, "");
    if (this.fields === null) return `${pointer || "the event"} ${problem.detail}`;
    const labels = this.fields.map(({ name }) => [`/features/${pointed(name)}`, name]);
    return labelled({ ...problem, pointer }, Object.fromEntries(labels));
  }

  #refuse(reasons) {
    this.trouble.hidden = reasons.length === 0;
    this.trouble.replaceChildren(...reasons.map((text) => el("p", { text })));
    this.#mark([]);
    if (reasons.length > 0) this.result.replaceChildren();
  }

  /** Mark the fields that problems point to, and go to the first. */
  #mark(pointers) {
    const wrong = (this.inputs ?? []).filter(({ name, input }) => {
      const isWrong = pointers.includes(`/events/0/features/${pointed(name)}`);
      put(input, "aria-invalid", isWrong ? "true" : null);
      return isWrong;
    });
    const at = document.activeElement; // the reader may have gone elsewhere meanwhile
    if (at === document.body || this.element.contains(at)) wrong[0]?.input.focus();
  }

  #show({ ready, position, results: [{ score, probability, threshold, label, rank, explanation }] }) {
    const verdict = el("p", { class: "verdict" });
    const ordinal = probability === undefined;
    if (ordinal) write(verdict, rank === null ? "No rank: the learner is not ready" : `Rank ${rank}`);
    else
      write(
        verdict,
        label === null || !ready ? "No decision: the learner is not ready" : label === 1 ? "Alert" : "No alert",
      );
    verdict.dataset.alert = String(label === 1);
    const facts = [["score", finite(score, short)]];
    if (!ordinal)
      facts.push(
        ["probability", finite(probability, short)],
        ["threshold", ready && threshold !== null ? short(threshold) : "none yet"],
      );
    facts.push(["at log position", String(position)]);
    const parts = [
      verdict,
      el(
        "dl",
        { class: "facts" },
        facts.map(([term, text]) => el("div", {}, el("dt", { text: term }), el("dd", { text }))),
      ),
    ];
    if (explanation) {
      const body = el("tbody");
      bars(body, [
        ...explanation.features
          .filter(({ contribution }) => contribution !== 0)
          .map(({ name, contribution }) => [name, contribution]),
        ...(explanation.rest === 0 ? [] : [["all others together", explanation.rest]]),
      ]);
      const intercept = finite(explanation.intercept, signed(3));
      const none = body.rows.length === 0;
      const caption = `${none ? "No" : "What each"} feature adds to the score, beside ${intercept} of every event`;
      parts.push(none ? el("p", { text: caption }) : barsTable("Contribution", body, caption));
    }
    this.result.replaceChildren(...parts);
  }
}
