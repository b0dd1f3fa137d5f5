/* Dialogs (the browser's own: focus stays inside, Escape closes) and the news at the page's edge. */

import { el, freshId, once, write } from "./dom.js";
import { untilAnswered } from "./live.js";

const LASTS = 12; // seconds that a piece of news stays, unless it is an alarm
const MOST = 4;
const CANCEL = "Cancel"; // what a dialog's other button does until something is sent

/** Show a dialog with a form; resolves with what `submit` gives, or undefined where the reader turns away.
 *
 * `submit` may be async; what it throws is shown in the dialog, which stays. A reader who leaves it meanwhile calls
 * nothing back: what comes of it is given all the same, and a failure is announced.
 */
export function dialog({ title, body, confirm = "OK", dangerous = false, submit, reason, names = "" }) {
  return new Promise((resolve) => {
    const label = freshId();
    const trouble = el("p", { class: "trouble", role: "alert", hidden: true });
    const go = el("button", { type: "submit", class: dangerous ? "danger" : "primary", text: confirm });
    const away = el("button", { type: "button", text: CANCEL, on: { click: () => box.close() } });
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
    let task = null; // settles once what was confirmed has come to its end
    const confirmed = async () => {
      trouble.hidden = true;
      write(away, "Close");
      try {
        result = await submit();
        box.close();
      } catch (error) {
        trouble.textContent = reason(error);
        trouble.hidden = false;
        untilAnswered(trouble, error);
        if (!box.open) announce(`${title} – ${trouble.textContent}`, { alarm: true });
      }
      write(away, CANCEL);
    };
    form.addEventListener("submit", (event) => {
      event.preventDefault();
      once(go, () => (task = confirmed()));
    });
    box.addEventListener("close", async () => {
      box.remove();
      await task;
      resolve(result);
    });
    document.body.append(box);
    box.showModal();
  });
}

/** Ask for an API key, after a refusal or (null) at the reader's own wish.
 *
 * Gives the key, null to go on without one, undefined where nothing changes.
 */
export function askKey(present, refused) {
  const [id, about] = [freshId(), freshId()];
  const input = el("input", {
    id,
    type: "password",
    "aria-describedby": about,
    autocomplete: "off",
    value: present ?? "",
    spellcheck: "false",
  });
  return dialog({
    title: "API key",
    names: "key",
    confirm: "Use it",
    body: [
      refused === null ? null : el("p", { class: "trouble", text: refusal(refused, present) }),
      el("p", {
        text:
          "A key tells this service who you are, and so what you may do here: look on, score events, teach, or make " +
          "and change learners. Whoever runs the service gives you one; it begins with rs_.",
      }),
      el("label", { for: id, text: "Key" }),
      input,
      el("p", {
        id: about,
        class: "help",
        text:
          "This page sends it to this service with all that it asks, and to nobody else. It is kept in this tab " +
          "alone, until you close it. Leave the field empty to go on without one.",
      }),
    ].filter((part) => part !== null),
    submit: () => input.value.trim() || null,
    reason: String,
  });
}

/** Why something was refused with this key, or without one (null), to people: what the server says is for programs, too. */
export function refusal({ status, message }, present) {
  if (status !== 401) return `The service refuses this: ${message}`;
  return present === null
    ? "This service shows itself to those with a key only."
    : "The key in use is not accepted: it is mistyped, or was taken back, or is no longer valid.";
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
