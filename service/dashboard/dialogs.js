/* Dialogs (the browser's own: focus stays inside, Escape closes) and the news at the page's edge. */

import { el, freshId } from "./dom.js";

const LASTS = 12; // seconds that a piece of news stays, unless it is an alarm
const MOST = 4;

/** Show a dialog with a form; resolves with what `submit` gives, or undefined where the reader turns away.
 *
 * `submit` may be async; what it throws is shown in the dialog, which stays.
 */
export function dialog({ title, body, confirm = "OK", dangerous = false, submit, reason, names = "" }) {
  return new Promise((resolve) => {
    const label = freshId();
    const trouble = el("p", { class: "trouble", role: "alert", hidden: true });
    const go = el("button", { type: "submit", class: dangerous ? "danger" : "primary", text: confirm });
    const away = el("button", { type: "button", text: "Cancel", on: { click: () => box.close() } });
    const form = el(
      "form",
      { method: "dialog", novalidate: true },
      el("h2", { id: label, text: title }),
      ...body,
      trouble,
      el("p", { class: "buttons" }, away, go),
    );
    const box = el("dialog", { class: names, "aria-labelledby": label }, form);
    let result;
    form.addEventListener("submit", async (event) => {
      event.preventDefault();
      go.disabled = true;
      trouble.hidden = true;
      try {
        result = await submit();
        box.close();
      } catch (error) {
        trouble.textContent = reason(error);
        trouble.hidden = false;
      }
      go.disabled = false;
    });
    box.addEventListener("close", () => {
      box.remove();
      resolve(result);
    });
    document.body.append(box);
    box.showModal();
  });
}

/** Ask for an API key: the key, null to go on without one, undefined where nothing changes. */
export function askKey(present, why) {
  const id = freshId();
  const input = el("input", { id, type: "password", autocomplete: "off", value: present ?? "", spellcheck: "false" });
  return dialog({
    title: "API key",
    names: "key",
    confirm: "Use it",
    body: [
      why === null ? null : el("p", { class: "trouble", text: `The server refused: ${why}` }),
      el("p", { text: "It is kept in this tab only, until you close it. Leave it empty to go on without one." }),
      el("label", { for: id, text: "Key" }),
      input,
    ].filter((part) => part !== null),
    submit: () => input.value.trim() || null,
    reason: String,
  });
}

/** A piece of news at the edge of the page, which screen readers announce; an alarm stays until it is put away. */
export function announce(text, { href = null, alarm = false } = {}) {
  const news = document.getElementById("news");
  const item = el(
    "div",
    { class: alarm ? "alarm" : "" },
    href === null ? el("p", { text }) : el("p", {}, el("a", { href, text })),
    el("button", { type: "button", "aria-label": "Put this away", text: "×", on: { click: () => item.remove() } }),
  );
  news.append(item);
  while (news.children.length > MOST) news.firstElementChild.remove();
  if (!alarm) setTimeout(() => item.remove(), LASTS * 1000);
}
