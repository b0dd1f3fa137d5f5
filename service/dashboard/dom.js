/* Elements made, and kept up to date in place, without markup in strings: what comes from the server is text only. */

const SVG = "http://www.w3.org/2000/svg";

/** An element with attributes and children (elements, strings; null is left out).
 *
 * `class`, `text`, `data` (of the dataset) and `on` (listeners by event) are special; true sets an empty attribute,
 * false, null and undefined set none.
 */
export function el(name, attributes = {}, ...children) {
  return fill(document.createElement(name), attributes, children);
}

/** The same in SVG. */
export function svg(name, attributes = {}, ...children) {
  return fill(document.createElementNS(SVG, name), attributes, children);
}

function fill(element, { class: names, text, data, on, ...attributes }, children) {
  if (names) element.setAttribute("class", names);
  if (text !== undefined) element.textContent = text;
  if (data) Object.assign(element.dataset, data);
  for (const [kind, listener] of Object.entries(on ?? {})) element.addEventListener(kind, listener);
  for (const [attribute, value] of Object.entries(attributes)) put(element, attribute, value);
  element.append(...children.flat().filter((child) => child !== null && child !== undefined));
  return element;
}

/** Set an attribute, or take it away, only where that changes something. */
export function put(element, attribute, value) {
  if (value === null || value === undefined || value === false) element.removeAttribute(attribute);
  else if (element.getAttribute(attribute) !== String(value === true ? "" : value)) {
    element.setAttribute(attribute, value === true ? "" : String(value));
  }
}

/** Set text only where it differs: a selection or a screen reader's place is not disturbed. */
export function write(element, text) {
  if (element.textContent !== text) element.textContent = text;
}

/** Do what a button starts, which is async; a second time is not begun meanwhile. Unlike a disabled one it keeps the focus. */
export async function once(button, work) {
  if (button.hasAttribute("aria-disabled")) return;
  put(button, "aria-disabled", "true");
  try {
    await work();
  } finally {
    put(button, "aria-disabled", null);
  }
}

/** Make the children of `parent` match `items` by key; a kept child stays the same element, and keeps the focus. */
export function arrange(parent, items, keyOf, make, update) {
  const focused = parent.contains(document.activeElement) ? document.activeElement : null;
  const before = new Map([...parent.children].map((child) => [child.dataset.key, child]));
  items.forEach((item, i) => {
    const key = String(keyOf(item));
    let child = before.get(key);
    before.delete(key);
    if (child === undefined) {
      child = make(item);
      child.dataset.key = key;
    }
    if (parent.children[i] !== child) parent.insertBefore(child, parent.children[i] ?? null);
    update?.(child, item);
  });
  for (const child of before.values()) child.remove();
  if (focused !== document.activeElement) focused?.focus({ preventScroll: true }); // moving it took the focus away
}

let made = 0;

/** An id that no other element has, for labels and descriptions. */
export const freshId = () => `made-${(made += 1)}`;
