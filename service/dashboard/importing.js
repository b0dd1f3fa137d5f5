/* A button that makes a learner of a file that was exported, here or elsewhere. */

import { watchScope } from "./access.js";
import { onward } from "./address.js";
import { ask, learnerPath, NAMELESS, named, reasonsOf, Refused } from "./api.js";
import { announce, dialog } from "./dialogs.js";
import { el, freshId, write } from "./dom.js";
import { bytes, counted } from "./format.js";

const PATIENCE = 600; // seconds: a file may be large, and the way to the service slow

export function importing(signal) {
  const id = freshId();
  const file = el("input", {
    type: "file",
    hidden: true,
    "aria-label": "File of an exported learner",
    on: { change: () => file.files.length > 0 && importFile(file) },
  });
  const button = el("button", {
    type: "button",
    text: "Import a file …",
    "aria-describedby": id,
    on: { click: () => file.click() },
  });
  const why = el("p", { id, class: "help" });
  watchScope("admin", signal, (reason) => {
    button.disabled = reason !== null;
    write(
      why,
      reason === null ? "Import an exported learner under a new name." : `Not allowed: ${reason}`,
    );
  });
  return el("div", { class: "importing" }, button, why, file);
}

/** Ask for the learner's name and send the file. */
async function importFile(input) {
  const [file] = input.files;
  const go = onward();
  input.value = ""; // so that the same file can be chosen again
  const id = freshId();
  const name = el("input", { id, value: nameOf(file.name), autocomplete: "off", spellcheck: "false" });
  let requestedName;
  const done = await dialog({
    title: "Import a learner",
    confirm: "Import it",
    body: [
      el("p", {
        text:
          `${file.name} (${bytes(file.size)}) becomes a learner with all that the exported one had learnt. ` +
          "Nothing is created of a file that is damaged, or holds something else.",
      }),
      el("label", { for: id, text: "Name of the learner" }),
      name,
    ],
    submit: () => {
      requestedName = name.value.trim();
      return ask("POST", learnerPath(requestedName || NAMELESS, "/import"), { file, patience: PATIENCE });
    },
    reason: (error) => {
      if (requestedName === "" && error instanceof Refused) {
        error.errors = named(error.errors, "is empty: a learner needs a name");
      }
      return reasonsOf(error, { "/name": "Name of the learner" });
    },
  });
  if (done === undefined) return;
  announce(`${done.name} is imported: ${counted(done.events, "event")} learnt.`);
  go(`#/learners/${encodeURIComponent(done.name)}`);
}

/** What the learner was called, by the name that an export gives its file: fraud-1200.rarestream. */
const nameOf = (file) => file.replace(/\.[^.]*$/, "").replace(/-\d+( ?\(\d+\))?$/, "").slice(0, 100);
