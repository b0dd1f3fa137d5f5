/* The dialog that makes a group: a name and its learners. All that is wrong stands at once, each beside its field. */

import { onward } from "./address.js";
import { ask, get, groupPath, keyWords, labelled, NAMELESS, named, reasonOf, Refused } from "./api.js";
import { announce, dialog } from "./dialogs.js";
import { el, freshId, put, write } from "./dom.js";

/** Ask for the group, and go to its page once it is made. */
export async function askGroup() {
  const go = onward();
  let names;
  try {
    const listing = await get("learners?figures=true", { interactive: true });
    names = [
      ...listing.learners.filter((learner) => Object.hasOwn(learner.class_counts, "positive")).map(({ name }) => name),
      ...listing.asleep,
    ].sort();
  } catch (error) {
    announce(reasonOf(error));
    return;
  }
  const form = new GroupForm(names);
  const done = await dialog({
    title: "A group of learners",
    confirm: "Create group",
    body: [form.element],
    submit: () => form.send(),
    reason: (error) => form.refuse(error),
  });
  if (done === undefined) return;
  announce(`${done.name} compares ${done.config.learners.join(", ")}.`);
  go(`#/compare/${encodeURIComponent(done.name)}`);
}

class GroupForm {
  /** `names`: of the learners that there are to choose from. */
  constructor(names) {
    const [id, wrongName, wrongLearners] = [freshId(), freshId(), freshId()];
    this.name = el("input", { id, autocomplete: "off", spellcheck: "false", "aria-describedby": wrongName });
    this.boxes = names.map((name) => el("input", { type: "checkbox", value: name, "aria-describedby": wrongLearners }));
    this.nameTrouble = el("p", { id: wrongName, class: "trouble", role: "alert" });
    this.learnersTrouble = el("p", { id: wrongLearners, class: "trouble", role: "alert" });
    this.element = el(
      "div",
      { class: "stack" },
      el("div", { class: "setting" }, el("label", { for: id, text: "Name of the group" }), this.name, this.nameTrouble),
      el(
        "div",
        { class: "setting" },
        el(
          "fieldset",
          { class: "choices" },
          el("legend", { text: "Learners, two to eight" }),
          this.boxes.map((box) => el("label", {}, box, ` ${box.value}`)),
        ),
        this.learnersTrouble,
      ),
    );
  }

  send() {
    this.#show([]);
    this.request = { name: this.name.value.trim(), boxes: this.boxes.filter((box) => box.checked) };
    return ask("PUT", groupPath(this.request.name || NAMELESS), {
      body: { learners: this.request.boxes.map((box) => box.value) },
    });
  }

  /** Show what is wrong with what was sent; gives in words what has no field. */
  refuse(error) {
    const problems = error instanceof Refused ? error.errors : [];
    const left = this.#show(this.request.name === "" ? named(problems, "a group needs a name") : problems);
    return [reasonOf(error), ...left.map((problem) => labelled(problem))].join("; ");
  }

  /** Put each problem beside its field; gives those that have none. */
  #show(problems) {
    for (const box of this.boxes) put(box, "aria-invalid", null);
    const ofName = problems.filter(({ pointer }) => pointer === "/name");
    const ofLearners = problems.filter(({ pointer }) => /^\/learners(\/|$)/.test(pointer));
    put(this.name, "aria-invalid", ofName.length > 0 ? "true" : null);
    write(this.nameTrouble, ofName.map(({ detail }) => detail).join("; "));
    const words = ofLearners.map(({ pointer, detail }) => {
      const [place] = pointer.split("/").slice(2); // none where it is about all of them
      for (const box of place === undefined ? this.boxes : [this.request.boxes[place]]) put(box, "aria-invalid", "true");
      return place === undefined ? detail : `${keyWords(place)} ${detail}`;
    });
    write(this.learnersTrouble, words.join("; "));
    this.element.querySelector("[aria-invalid]")?.focus();
    return problems.filter((problem) => !ofName.includes(problem) && !ofLearners.includes(problem));
  }
}
