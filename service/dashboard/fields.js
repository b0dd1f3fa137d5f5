/* The fields of named events: how their values were sent, and what contradicts their kinds. */

import { arrange, el, put, write } from "./dom.js";
import { count, counted, NOTHING, share } from "./format.js";
import { TablePanel } from "./table_panel.js";

const MOST = 50; // fields in the table, those with most contradictions first

const part = (n, events) => (n === 0 ? NOTHING : share(n / events));

/** A number as it is read in a column: 1,250, 0.012, 1.250e-3. */
function figure(x) {
  if (x === null) return NOTHING;
  const size = Math.abs(x);
  const text = size !== 0 && (size < 0.01 || size >= 1e12) ? x.toExponential(3) : count(Number(x.toPrecision(5)));
  return text.replace("-", "−");
}

// head, title, and the cell of a field after so many events
const COLUMNS = [
  ["Numbers", "share of events with a number", (f, n) => part(f.numbers + f.numbers_as_text, n)],
  ["As text", "share of events with a number that was sent as text", (f, n) => part(f.numbers_as_text, n)],
  ["Categories", "share of events with a text or a boolean", (f, n) => part(f.texts + f.booleans, n)],
  ["Lists", "share of events with a list", (f, n) => part(f.lists, n)],
  ["Missing", "share of events without a value", (f, n) => part(f.missing, n)],
  ["Wrong kind", "share of events whose value contradicts the kind", (f, n) => part(f.contradictions, n)],
  ["New", "values that were new to the learner", (f) => (f.new_categories === 0 ? NOTHING : count(f.new_categories))],
  ["Out of range", "share of events whose number is far outside the range", (f, n) => part(f.out_of_range, n)],
  ["Smallest", "number; its logarithm if the field is declared under log", (f) => figure(f.smallest)],
  ["1 %", "about one in 100 numbers that are not 0 is below; the range follows the field", (f) => figure(f.low)],
  ["99 %", "about one in 100 numbers that are not 0 is above; the range follows the field", (f) => figure(f.high)],
  ["Largest", "number; its logarithm if the field is declared under log", (f) => figure(f.largest)],
  ["Last", "the last event that had a value", (f) => (f.last === null ? "never" : count(f.last))],
];

/** What is odd about fields, the first few. */
function remarked(remark, text, fields) {
  const names = fields.filter(({ remarks }) => remarks.includes(remark)).map(({ name }) => name);
  const more = names.length > 5 ? ` and ${counted(names.length - 5, "further field")}` : "";
  return names.length === 0 ? "" : `${names.slice(0, 5).join(", ")}${more} ${text}.`;
}

/** How many fields there are, and what is wrong with them. */
function summary({ events, fields, absent, omitted }) {
  const wrong = fields.filter(({ contradictions }) => contradictions > 0);
  return [
    `${fields.length > MOST ? `${count(MOST)} of ` : ""}${counted(fields.length, "field")} of ${counted(events, "event")}.`,
    absent.length > 0 ? `No event has had ${absent.join(", ")}, declared for this learner.` : "",
    omitted ? "As many fields are remembered as can be: values of others are learnt, not counted." : "",
    wrong.length > 0 ? `Values contradict the kind of ${counted(wrong.length, "field")}.` : "",
    remarked("unique", "is new in each event, as an id", fields),
    remarked("constant", "has been the same for long", fields),
    remarked("stopped", "has been missing for long", fields),
    remarked("rounded", "has numbers beyond 2^53, which have lost digits if they are ids: send ids as text", fields),
  ]
    .filter((text) => text !== "")
    .join(" ");
}

export class Fields extends TablePanel {
  /** `suggest` receives the fields. */
  constructor({ name }, signal, suggest) {
    const list = el("tbody");
    const table = el(
      "table",
      { class: "plain wide", hidden: true },
      el(
        "thead",
        {},
        el(
          "tr",
          {},
          ["Field", "Kind"].map((text) => el("th", { scope: "col", text })),
          COLUMNS.map(([text, title]) => el("th", { scope: "col", class: "number", text, title })),
        ),
      ),
      list,
    );
    const scrolling = el(
      "div",
      { class: "scrolls", tabindex: "0", role: "group", "aria-label": "Table of fields" },
      table,
    );
    super({ name, panel: "fields", title: "Fields", path: "/fields", missing: "No fields" }, table, scrolling, signal);
    this.list = list;
    this.suggest = suggest;
  }

  show(reply) {
    this.suggest(reply.fields);
    arrange(
      this.list,
      [...reply.fields].sort((a, b) => b.contradictions - a.contradictions).slice(0, MOST),
      ({ name }) => name,
      ({ name }) =>
        el(
          "tr",
          {},
          el("th", { scope: "row", text: name, title: name }),
          el("td"),
          COLUMNS.map(() => el("td", { class: "number" })),
        ),
      (row, field) => {
        write(row.cells[1], field.kind);
        put(row.cells[1], "title", field.declared ? "declared" : null);
        COLUMNS.forEach(([, , cell], i) => write(row.cells[i + 2], cell(field, reply.events)));
      },
    );
    this.table.hidden = reply.fields.length === 0;
    return reply.fields.length === 0 ? "No event so far." : summary(reply);
  }
}
