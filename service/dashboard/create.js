/* A form for a new learner, built from the catalogue's JSON schemas. */

import { access, watchScope } from "./access.js";
import { onward, tellUnread, unreadNote } from "./address.js";
import { ask, get, labelled, learnerPath, NAMELESS, named, reasonOf, reasonsOf, Refused, theKey } from "./api.js";
import { announce, refusal } from "./dialogs.js";
import { el, freshId, once, put, write } from "./dom.js";
import { importing } from "./importing.js";
import { rounds, untilAnswered } from "./live.js";
import { OBJECTIVES } from "./objectives.js";
import { SchemaForm, within } from "./schema_form.js";

const PATIENCE = 300; // seconds: the first of its kind on a machine waits for its kernels
const USUAL = "auto"; // the algorithm that is proposed
const SLOW = 1.5; // seconds after which the page explains the wait

const PARTS = [
  ["threshold", "Threshold", "what alerts are for"],
  ["calibration", "Calibration", "how a score becomes a probability"],
  ["scaling", "Scaling", "of the features"],
  ["embedding", "Embedding", "nonlinear features in front of the model"],
  ["figures", "Metrics", "settings of the live metrics"],
  ["late", "Late labels", "how long events wait for theirs"],
];
const WAITING =
  "It is being created: its kernels are compiled, once for this machine and version, which takes about a minute.";
/* In the order in which they are offered: the first that the algorithm takes is what the form begins with. */
const KINDS = {
  named: "named: an object of any fields, hashed",
  dense: "dense: a list of numbers",
  table: "table: an object of declared fields",
  sparse: "sparse: indices and values",
};

export function show(main, place, signal) {
  document.title = "New learner – rarestream";
  const waiting = el("p", {
    class: "message",
    text: "The form appears here as soon as the server has given its catalogue.",
  });
  main.append(el("header", { class: "title" }, el("h1", { text: "New learner" }), importing(signal)), waiting);
  let made = false;
  rounds(
    async () => {
      if (made) {
        await get("health/live", { signal }); // so that the line at the top stays true
        return;
      }
      const catalogue = await get("algorithms", { signal });
      made = true;
      waiting.remove();
      main.append(new Creation(catalogue, place, signal).element);
    },
    5,
    signal,
    (error) => {
      if (error instanceof Refused) write(waiting, `The form cannot be shown. ${refusal(error, theKey())}`);
      return null;
    },
  );
}

class Creation {
  constructor({ algorithms, parts }, place, signal) {
    this.algorithms = new Map(algorithms.map((algorithm) => [algorithm.name, algorithm]));
    this.parts = parts;
    this.place = place;
    this.featureForms = new Map(); // kind -> its form
    this.last = new Map(); // part -> its form as it was last shown
    this.unfolded = {}; // part -> whether it is
    const ids = { name: freshId(), algorithm: freshId(), kind: freshId() };
    this.name = el("input", {
      id: ids.name,
      required: true,
      autocomplete: "off",
      spellcheck: "false",
      "aria-describedby": `${ids.name}-help`,
      value: place.query.get("name") ?? "",
      on: {
        input: () => {
          write(this.nameTrouble, "");
          put(this.name, "aria-invalid", null);
        },
        change: () => place.keep({ name: this.name.value.trim() }),
      },
    });
    this.nameTrouble = el("p", { class: "trouble", role: "alert" });
    this.algorithm = el(
      "select",
      { id: ids.algorithm, on: { change: () => this.#another() } },
      kindsOf(algorithms).map(([label, members]) =>
        el(
          "optgroup",
          { label },
          members.map(({ name }) => el("option", { value: name, text: name })),
        ),
      ),
    );
    const initial = place.query.get("algorithm") ?? USUAL;
    this.algorithm.value = this.algorithms.has(initial) ? initial : USUAL;
    this.initial = place.query.get("kind");
    this.unread = unreadNote(); // the address keeps what it is about, until another is chosen
    this.unread.id = freshId();
    put(this.algorithm, "aria-describedby", this.unread.id);
    this.summary = el("p", { class: "help" });
    this.text = el("pre", { tabindex: "0" });
    this.kind = el("select", { id: ids.kind, on: { change: () => this.#chooseKind() } });
    this.kindTrouble = el("p", { class: "trouble", role: "alert" });
    this.params = el("div");
    this.features = el("div");
    this.others = el("div", { class: "others" });
    this.trouble = el("div", { class: "trouble", role: "alert", hidden: true });
    this.preview = el("pre", { tabindex: "0" });
    this.go = el("button", { type: "submit", class: "primary", text: "Create it" });
    this.waiting = el("span", { class: "quiet", role: "status" });
    const setting = (id, label, ...content) =>
      el("div", { class: "setting" }, el("label", { for: id, text: label }), ...content);
    this.element = el(
      "form",
      { class: "create", novalidate: true, on: { submit: (event) => this.#submit(event), input: () => this.#show() } },
      el(
        "section",
        { class: "panel" },
        el("h2", { text: "What it is" }),
        el(
          "div",
          { class: "settings" },
          setting(
            ids.name,
            "name",
            this.name,
            el("p", {
              id: `${ids.name}-help`,
              class: "help",
              text: "1 to 100 of letters, digits, . _ -; begins with a letter or a digit",
            }),
            this.nameTrouble,
          ),
          setting(
            ids.algorithm,
            "algorithm",
            this.algorithm,
            this.unread,
            this.summary,
            el("details", {}, el("summary", { text: "About it" }), this.text),
          ),
        ),
      ),
      el(
        "section",
        { class: "panel" },
        el("h2", { text: "Features" }),
        el("div", { class: "settings" }, setting(ids.kind, "kind", this.kind, this.kindTrouble)),
        this.features,
      ),
      el(
        "section",
        { class: "panel", data: { part: "params" } },
        el("h2", { text: "Parameters of the algorithm" }),
        this.params,
      ),
      this.others,
      this.trouble,
      el("details", { class: "panel" }, el("summary", { text: "The request that is sent" }), this.preview),
      el("p", { class: "buttons" }, this.go, this.waiting),
    );
    const fields = el("fieldset", { class: "whole" }, ...this.element.children);
    const why = el("p", { class: "withheld", hidden: true });
    this.element.append(why, fields);
    watchScope("admin", signal, (reason) => {
      fields.disabled = reason !== null;
      const note = reason === null ? access.only : `No learner can be created here: ${reason}`;
      why.hidden = note === null;
      write(why, note ?? "");
    });
    this.#turned();
    this.#showUnread();
  }

  /** The reader chose another algorithm. */
  #another() {
    this.#turned();
    this.place.keep({ algorithm: this.algorithm.value, kind: this.kind.value === this.initial ? this.initial : null });
    this.#showUnread();
  }

  /** Say what of the address is not followed. */
  #showUnread() {
    const [algorithm, kind] = ["algorithm", "kind"].map((key) => this.place.query.get(key));
    const parts = [];
    if (algorithm !== null && algorithm !== this.algorithm.value) parts.push(`there is no algorithm “${algorithm}”`);
    if (kind !== null && kind !== this.kind.value) parts.push(`it takes no features of the kind “${kind}”`);
    tellUnread(this.unread, parts);
  }

  /** Show what the algorithm takes. */
  #turned() {
    const algorithm = this.algorithms.get(this.algorithm.value);
    write(this.summary, algorithm.summary);
    write(this.text, algorithm.description);
    const possible = Object.keys(KINDS).filter((kind) => algorithm.sparse || kind === "dense" || kind === "table");
    this.kind.replaceChildren(...possible.map((kind) => el("option", { value: kind, text: KINDS[kind] })));
    if (possible.includes(this.initial)) this.kind.value = this.initial;
    this.paramForm = this.#form(algorithm.params, {}, "Parameters of the algorithm");
    this.params.replaceChildren(
      Object.keys(algorithm.params.properties).length === 0
        ? el("p", { class: "quiet", text: "It has none." })
        : this.paramForm.element,
    );
    this.#features();
  }

  /** The settings beside, with their defaults for these features. */
  #others() {
    const algorithm = this.algorithms.get(this.algorithm.value);
    const usual = algorithm.usual[this.kind.value] ?? {};
    for (const { dataset, open } of this.others.children) this.unfolded[dataset.part] = open;
    this.otherForms = new Map();
    const learner = { ...this.parts.learner, properties: { ...this.parts.learner.properties } };
    if (!algorithm.batch) {
      delete learner.properties.refit_every;
      delete learner.properties.refit_window;
    }
    const parts = PARTS.filter(([part]) => !algorithm.ordinal || !["threshold", "calibration"].includes(part));
    this.others.replaceChildren(
      ...parts.map(([part, title, what]) => {
        const choices = part === "threshold" ? { objective: OBJECTIVES } : {};
        const form = this.#form(this.parts[part], usual[part] ?? {}, title, choices);
        this.#again(part, form);
        this.otherForms.set(part, form);
        return folded(part, title, what, form.element);
      }),
    );
    this.wholeForm = this.#form(learner, usual, "The learner as a whole");
    this.#again("whole", this.wholeForm);
    this.others.append(
      folded("whole", "The learner as a whole", "window, remembered ids, seed", this.wholeForm.element),
    );
    for (const part of this.others.children) part.open = this.unfolded[part.dataset.part] ?? false;
  }

  /** Have in a new form of a part what was entered in the one before it. */
  #again(part, form) {
    if (this.last.has(part)) form.adopt(this.last.get(part));
    this.last.set(part, form);
  }

  /** A kind of features, which stays where another algorithm takes it, too. */
  #chooseKind() {
    this.initial = this.kind.value;
    this.place.keep({ kind: this.initial });
    this.#features();
    this.#showUnread();
  }

  #features() {
    const kind = this.kind.value; // whatever the algorithm, its settings are the same
    if (!this.featureForms.has(kind))
      this.featureForms.set(kind, this.#form(this.parts.features[kind], {}, "Features"));
    this.featureForm = this.featureForms.get(kind);
    this.features.replaceChildren(this.featureForm.element);
    this.#others();
    this.#show();
  }

  #form(schema, defaults, label, choices = {}) {
    return new SchemaForm(schema, { defaults, label, choices, changed: () => this.#show() });
  }

  #body() {
    const body = { algorithm: this.algorithm.value, features: this.featureForm.read() };
    const parts = [["params", this.paramForm], ...this.otherForms];
    for (const [part, form] of parts) {
      const values = form.read();
      if (Object.keys(values).length > 0) body[part] = values;
    }
    return { ...body, ...this.wholeForm.read() };
  }

  #show() {
    if (this.featureForm === undefined || this.wholeForm === undefined) return;
    const address = new URL(`v1/${learnerPath(this.name.value.trim() || "NAME")}`, location.href).href;
    write(this.preview, `PUT ${address}\n\n${JSON.stringify(this.#body(), null, 2)}`);
  }

  #submit(event) {
    event.preventDefault();
    once(this.go, () => this.#send());
  }

  async #send() {
    const [name, go] = [this.name.value.trim(), onward()];
    this.#refuse([], "");
    const timer = setTimeout(() => write(this.waiting, WAITING), SLOW * 1000);
    try {
      const { warnings } = await ask("PUT", learnerPath(name || NAMELESS), { body: this.#body(), patience: PATIENCE });
      announce(`${name} is created.`);
      for (const warning of warnings) announce(`Warning: ${name}: ${labelled(warning)}`, { alarm: true });
      go(`#/learners/${encodeURIComponent(name)}`);
    } catch (error) {
      if (!this.element.isConnected) announce(`${name} is not created: ${reasonsOf(error)}`, { alarm: true });
      const problems = error instanceof Refused ? error.errors : [];
      if (error.code === "name-taken") this.#refuse([{ pointer: "/name", detail: error.message }], "");
      else this.#refuse(name === "" ? named(problems, "a learner needs a name") : problems, reasonOf(error));
      for (const line of this.trouble.children) untilAnswered(line, error);
    }
    clearTimeout(timer);
    write(this.waiting, "");
  }

  #nameIs(wrong) {
    put(this.name, "aria-invalid", wrong ? "true" : null);
    if (wrong) this.name.focus();
  }

  /** Put each problem beside what it is about; what has no place stands above the button. */
  #refuse(problems, whole) {
    let left = problems;
    const forms = [["params", this.paramForm], ["features", this.featureForm], ...this.otherForms];
    write(
      this.nameTrouble,
      problems
        .filter(({ pointer }) => pointer === "/name")
        .map(({ detail }) => detail)
        .join("; "),
    );
    this.#nameIs(left.some(({ pointer }) => pointer === "/name"));
    left = left.filter(({ pointer }) => pointer !== "/name");
    for (const [part, form] of forms) {
      const before = left.length;
      left = within(left, `/${part}`, (problems) => form.refuse(problems));
      if (left.length < before) form.element.closest("details")?.setAttribute("open", "");
    }
    left = this.wholeForm.refuse(left);
    this.trouble.hidden = whole === "";
    const titles = Object.fromEntries(PARTS.map(([part, title]) => [`/${part}`, title]));
    const words = left.map((problem) => labelled(problem, titles));
    this.trouble.replaceChildren(...[whole, ...words].filter(Boolean).map((text) => el("p", { text })));
    this.element.querySelector("[aria-invalid]")?.focus();
  }
}

const folded = (part, title, what, content) =>
  el(
    "details",
    { class: "panel", data: { part } },
    el("summary", {}, title, el("small", { text: ` ${what}` })),
    content,
  );

const kindsOf = (algorithms) => [
  ["two classes, learning from each event", algorithms.filter(({ ordinal, batch }) => !ordinal && !batch)],
  ["two classes, fitted now and then", algorithms.filter(({ ordinal, batch }) => !ordinal && batch)],
  ["ranks", algorithms.filter(({ ordinal }) => ordinal)],
];
