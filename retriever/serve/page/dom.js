/** Helpers: elements built from data, never by parsing HTML; offsets in code points; debouncing. */

/** Create an element. Attributes named on… are listeners; children that are null or false are left out. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** Create an SVG element. */
export function svg(tag, attributes = {}, ...children) {
  return filled(document.createElementNS("http://www.w3.org/2000/svg", tag), attributes, children);
}

function filled(node, attributes, children) {
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (typeof value === "function") node.addEventListener(name.slice(2), value);
    else node.setAttribute(name, value === true ? "" : String(value));
  }
  return fill(node, ...children);
}

/** Replace an element's children. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Convert a number of code points into UTF-16 units, which JavaScript strings count. */
export function unitsOf(text, codePoints, from = 0) {
  let at = from;
  for (let left = codePoints; left > 0 && at < text.length; left--) at += text.codePointAt(at) > 0xffff ? 2 : 1;
  return at;
}

/** Return the text as nodes, with the part between two UTF-16 offsets marked. */
export function marked(text, start, end) {
  if (start === null || end <= start) return [text];
  return [text.slice(0, start), el("mark", {}, text.slice(start, end)), text.slice(end)].filter((part) => part !== "");
}

/** Announce a text to screen readers. */
export function announce(text) {
  const live = byId("live");
  if (live.textContent !== text) live.textContent = text;
}

/** Whether JavaScript represents a number of a response exactly: integers beyond 2^53 lose digits. */
export const isExact = (value) => typeof value !== "number" || Number.isSafeInteger(value) || (Number.isFinite(value) && !Number.isInteger(value));

/** Format one metadata value. */
export const valueText = (value) => (isExact(value) ? String(value) : `≈ ${value}`);

export const INEXACT = "A browser cannot represent this number exactly, so it cannot filter by it; type the filter yourself";

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** Return a function that runs when it was not called again for some milliseconds; `waits()` tells whether it is pending. */
export function debounced(run, milliseconds) {
  let timer = 0;
  const later = (...args) => {
    clearTimeout(timer);
    timer = setTimeout(() => {
      timer = 0;
      run(...args);
    }, milliseconds);
  };
  later.cancel = () => {
    clearTimeout(timer);
    timer = 0;
  };
  later.waits = () => timer !== 0;
  return later;
}

/** Whether the click opens another tab or window, which the browser handles. */
export const leavesPage = (event) =>
  event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
