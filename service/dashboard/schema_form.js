/* A form from a JSON schema of settings: each with its meaning, its range and its default.
 *
 * What is left empty is left out, so that the server's default holds. Problems that the server finds stand beside what
 * they are about, by their JSON pointers.
 */

import { keyWords, Refused } from "./api.js";
import { el, freshId, put, write } from "./dom.js";
import { bytes, count, spelt } from "./format.js";

/** The schema of a setting apart from null, and whether it may be null. */
function typed(schema) {
  if (schema.anyOf === undefined) return [schema, false];
  return [
    { ...schema, ...schema.anyOf.find(({ type }) => type !== "null") },
    schema.anyOf.some(({ type }) => type === "null"),
  ];
}

const itemText = (item) => (typeof item === "object" ? JSON.stringify(item) : String(item));

const listText = (items) => items.map(itemText).join(", ");

const textOf = (value) => (Array.isArray(value) ? listText(value) || "none" : String(value));

/** The items of a list with commas between them: names, and objects in JSON, which may have commas themselves. An
 * object that is no JSON goes as it is: the server says what is wrong with it. */
function itemsOf(text) {
  const items = [];
  let open = ""; // an object whose end is yet to come
  for (const part of text.split(",")) {
    const item = open === "" ? part.trim() : `${open},${part}`;
    open = "";
    if (item.startsWith("{"))
      try {
        items.push(JSON.parse(item));
      } catch {
        open = item;
      }
    else items.push(item);
  }
  return [...items, open].filter((item) => item !== "");
}

/** The same in a sentence: what is not to be typed like this may have its digits in groups. */
const spoken = (value) => (Number.isInteger(value) ? count(value) : textOf(value));

const isNumeric = ({ type }) => type === "number" || type === "integer";

function range({ minimum, maximum, exclusiveMinimum: above, exclusiveMaximum: below }) {
  const parts = [];
  if (above !== undefined) parts.push(`more than ${spoken(above)}`);
  if (minimum !== undefined) parts.push(`at least ${spoken(minimum)}`);
  if (below !== undefined) parts.push(`less than ${spoken(below)}`);
  if (maximum !== undefined) parts.push(`at most ${spoken(maximum)}`);
  return parts.join(", ");
}

/** What a number with a unit comes to in larger ones: `604800 s = 7 days`; "" where it has none, or is small. */
export function worth(value, unit) {
  if (typeof value !== "number") return ""; // none, or no number at all
  if (unit === "seconds" && value >= 60) return `${value} s = ${spelt(value)}`;
  if (unit === "bytes" && value >= 1024) {
    const parts = value / 2 ** (10 * Math.min(3, Math.floor(Math.log2(value) / 10)));
    return `${value} bytes ${Number(parts.toPrecision(3)) === parts ? "=" : "≈"} ${bytes(value)}`;
  }
  return "";
}

/** Return whether a setting has an effect with these values of the settings beside it. */
const applies = ({ "x-applies-to": choices = {} }, values) =>
  Object.entries(choices).every(([chooser, options]) => options.includes(values[chooser]));

/** Settings of an object. `values`: what is there now; `defaults`: in place of the schema's; `whole`: give
 * the default of what is left empty, instead of leaving it out; `label`: of the group; `choices`: by name of a
 * setting, what each of its values means, shown in place of its description; `changed` is called where something was
 * entered. */
export class SchemaForm {
  #settings = [];
  #changed;
  #choices;

  constructor(
    schema,
    { values = {}, defaults = {}, whole = false, label = null, choices = {}, changed = () => {} } = {},
  ) {
    this.schema = schema;
    this.whole = whole;
    this.#choices = choices;
    this.#changed = changed;
    for (const [name, property] of Object.entries(schema.properties)) {
      const usual = defaults[name] ?? property.default;
      this.#settings.push({
        name,
        schema: { ...property, default: usual },
        ...this.#made(name, property, usual, values[name], schema.required?.includes(name)),
      });
    }
    this.element = el(
      "div",
      { class: "settings", role: label && "group", "aria-label": label, on: { input: ({ target }) => this.#moved(target) } },
      this.#settings.map(({ element }) => element),
    );
    this.#relevant();
  }

  /** What was entered, as JSON. */
  read() {
    const out = {};
    for (const { name, read, element, schema } of this.#settings) {
      if (element.hidden && schema.const === undefined) continue;
      const entered = read();
      const value = entered === undefined && this.whole ? schema.default : entered;
      if (value !== undefined) out[name] = value;
    }
    return out;
  }

  /** Show what is wrong: [{pointer, detail}], pointers from this object on; gives those that have no place here. */
  refuse(problems) {
    const left = [];
    for (const { trouble, inputs } of this.#settings) {
      write(trouble, "");
      for (const input of inputs) put(input, "aria-invalid", null);
    }
    let remaining = problems;
    for (const { name, refuse } of this.#settings)
      if (refuse !== undefined) remaining = within(remaining, `/${name}`, refuse);
    for (const problem of remaining) {
      const [, name, ...rest] = problem.pointer.split("/");
      const setting = this.#settings.find((item) => item.name === name);
      if (setting === undefined || setting.element.hidden) left.push(problem);
      else {
        const place = rest.length > 0 ? `${rest.map(keyWords).join(", ")}: ` : "";
        write(setting.trouble, [setting.trouble.textContent, `${place}${problem.detail}`].filter(Boolean).join("; "));
        for (const input of setting.inputs) put(input, "aria-invalid", "true");
      }
    }
    this.element.querySelector("[aria-invalid]")?.focus();
    return left;
  }

  /** Send what was entered. Problems under the pointer are shown here; the error goes on with those that are not. */
  async submit(send, pointer) {
    this.refuse([]);
    try {
      return await send(this.read());
    } catch (error) {
      if (error instanceof Refused) {
        const others = error.errors.filter((problem) => under([problem], pointer).length === 0);
        error.errors = [...this.refuse(under(error.errors, pointer)), ...others];
      }
      throw error;
    }
  }

  /** Enter what was entered in a form before this one, of the same settings by name, whose defaults may be others. */
  adopt(before) {
    for (const { name, read, retained } of before.#settings) {
      const entered = read();
      const value = entered === undefined ? retained : entered; // null is entered, too
      const setting = this.#settings.find((item) => item.name === name);
      if (value === undefined || setting?.enter === undefined) continue;
      setting.enter(value);
      setting.retained = value; // for the form after this one, even if it is the default here
      setting.element.addEventListener("input", () => delete setting.retained, { once: true });
    }
    this.#relevant();
  }

  /** Enter values, by name. */
  enter(values) {
    for (const { name, enter } of this.#settings) if (values[name] !== undefined) enter?.(values[name]);
    this.#relevant();
  }

  /** Something was entered, by the reader at `target`: what was wrong with it there may be right now. */
  #moved(target = null) {
    for (const { element, trouble, inputs } of this.#settings) {
      if (!element.contains(target)) continue;
      write(trouble, "");
      for (const input of inputs) put(input, "aria-invalid", null);
    }
    this.#relevant();
    this.#changed();
  }

  #relevant() {
    const entered = Object.fromEntries(
      this.#settings.map(({ name, read, schema }) => [name, read() ?? schema.default]),
    );
    for (const [name, texts] of Object.entries(this.#choices)) {
      const { about } = this.#settings.find((item) => item.name === name);
      write(about, texts[entered[name]] ?? "");
    }
    for (const { name, element, schema, about, unit, equivalent } of this.#settings) {
      if (equivalent) write(equivalent, worth(entered[name], unit));
      if (about && this.#choices[name] === undefined) write(about, schema.description ?? "");
      element.hidden = schema.const !== undefined || !applies(schema, entered);
    }
  }

  #made(name, schema, usual, present, needed) {
    const id = freshId();
    const described = freshId();
    const [type, nullable] = typed(schema);
    if (type.const !== undefined)
      return { element: el("div", { hidden: true }), read: () => type.const, trouble: el("p"), inputs: [] };
    const { control, read, inputs, enter, refuse } = controlOf(type, nullable, {
      id,
      described,
      usual,
      present,
      needed,
      whole: this.whole,
      changed: (target) => this.#moved(target),
    });
    const open = nullable && isNumeric(type) && usual !== null && usual !== undefined;
    // the list of choices marks its default; null is the placeholder
    const hasDefault = usual !== undefined && usual !== null && !this.#choices[name];
    const facts = [
      [range(type), open ? "or null" : ""].filter(Boolean).join(", "),
      present === undefined || JSON.stringify(present) === JSON.stringify(usual) ? "" : `now: ${spoken(present)}`,
      needed ? "required" : hasDefault ? `default: ${spoken(usual)}` : "",
    ]
      .filter(Boolean)
      .join("; ");
    const trouble = el("p", { class: "trouble", role: "alert" });
    const about = el("span"); // what is written there depends on the choices
    const hint = el(
      "p",
      { id: described, class: "help" },
      about,
      facts === "" ? null : el("small", { text: ` (${facts})` }),
    );
    const equivalent = type.unit === undefined ? null : el("p", { id: freshId(), class: "meant" });
    if (equivalent) put(control, "aria-describedby", `${equivalent.id} ${described}`);
    // a list is a group with a name: a label would become the name of its first button
    const listed = control.classList.contains("list");
    const label = listed ? el("p", { class: "label", id, text: name }) : el("label", { for: id, text: name });
    if (listed) put(control, "aria-labelledby", id);
    const element = el("div", { class: "setting" }, label, control, equivalent, hint, trouble);
    return { element, read, enter, refuse, trouble, inputs, about, equivalent, unit: type.unit };
  }
}

/** The problems under a pointer, as seen from there. */
export const under = (problems, pointer) =>
  problems
    .filter((problem) => problem.pointer === pointer || problem.pointer.startsWith(`${pointer}/`))
    .map((problem) => ({ ...problem, pointer: problem.pointer.slice(pointer.length) }));

/** Have what is under a pointer show its problems: those that have no place there, and all others. */
export const within = (problems, pointer, refuse) => [
  ...problems.filter((problem) => under([problem], pointer).length === 0),
  ...refuse(under(problems, pointer)).map((problem) => ({ ...problem, pointer: `${pointer}${problem.pointer}` })),
];

/** What a value is entered with: {control, read, inputs, enter}; there is no entering a list of objects, of which each
 * shows its own problems ({refuse}). */
function controlOf(schema, nullable, { id, described, usual, present, needed, whole, changed }) {
  const about = { id, "aria-describedby": described, required: needed };
  const differs = present !== undefined && JSON.stringify(present) !== JSON.stringify(usual);
  if (schema.enum !== undefined) {
    const first = needed || whole ? null : usual === undefined ? "–" : `${textOf(usual)} (default)`;
    const select = el(
      "select",
      about,
      first === null ? null : el("option", { value: "", text: first }),
      schema.enum
        .filter((value) => first === null || value !== usual)
        .map((value) => el("option", { value, text: value === usual ? `${value} (default)` : value })),
    );
    select.value = first === null ? (present ?? usual ?? schema.enum[0]) : differs ? present : "";
    const enter = (value) => {
      if ([...select.options].some((option) => option.value === value)) select.value = value; // else it is the default
    };
    return { control: select, inputs: [select], read: () => select.value || undefined, enter };
  }
  if (schema.type === "boolean") {
    const box = el("input", { ...about, type: "checkbox", required: false });
    box.checked = present ?? usual ?? false;
    const read = () => (box.checked === (usual ?? false) ? undefined : box.checked);
    return { control: box, inputs: [box], read, enter: (value) => (box.checked = value) };
  }
  if (schema.type === "array" && schema.items.type === "object") return rowsOf(schema.items, present ?? [], changed);
  const list = schema.type === "array";
  const numeric = isNumeric(schema);
  const items = schema.items?.anyOf === undefined ? "names" : "names or JSON objects";
  const input = el("input", {
    ...about,
    autocomplete: "off",
    spellcheck: "false",
    inputmode: numeric ? "decimal" : null,
    placeholder: list ? `${items}, with commas between them` : usual === undefined ? null : textOf(usual),
  });
  const enter = (value) => (input.value = list ? listText(value) : textOf(value));
  if (differs && (present !== null || numeric)) enter(present);
  const read = () => {
    const text = input.value.trim();
    if (text === "") return differs && present !== null && nullable ? (usual ?? null) : undefined;
    if (nullable && numeric && text.toLowerCase() === "null") return null;
    if (list) return itemsOf(text);
    // what should be a number and is none goes as it is: the server says what is wrong with it
    return numeric && Number.isFinite(Number(text)) ? Number(text) : text;
  };
  return { control: input, inputs: [input], read, enter };
}

/** A list of objects: a row of settings for each, with buttons to add and to remove. */
function rowsOf(schema, present, changed) {
  const forms = new Map();
  const list = el("div", { class: "rows" });
  const add = (values) => {
    const form = new SchemaForm(schema, { values, changed });
    const remove = el("button", {
      type: "button",
      text: "Remove",
      on: {
        click: () => {
          forms.delete(row);
          row.remove();
          changed(list);
        },
      },
    });
    const row = el("fieldset", {}, el("legend", { class: "unseen", text: "one of the list" }), form.element, remove);
    forms.set(row, form);
    list.append(row);
    return form;
  };
  const more = el("button", {
    type: "button",
    text: "Add one",
    on: {
      click: () => {
        add({}).element.querySelector("input, select")?.focus();
        changed(list);
      },
    },
  });
  (present.length > 0 ? present : [{}]).forEach(add);
  return {
    control: el("div", { class: "list", role: "group" }, list, more),
    inputs: [more],
    read: () => [...forms.values()].map((form) => form.read()),
    refuse: (problems) =>
      [...forms.values()].reduce((left, form, i) => within(left, `/${i}`, (part) => form.refuse(part)), problems),
  };
}
