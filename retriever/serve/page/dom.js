/** Elements built from data, never by parsing text as HTML; and offsets in code points. */

/** An element; attributes named on… are listeners, and children that are null or false are left out. */
export function el(tag, attributes = {}, ...children) {
  return filled(document.createElement(tag), attributes, children);
}

/** The same of SVG. */
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

/** Put these children in place of the ones there are. */
export function fill(node, ...children) {
  node.replaceChildren(...children.flat().filter((child) => child !== null && child !== undefined && child !== false));
  return node;
}

export const byId = (id) => document.getElementById(id);

/** Where in a JavaScript string, which counts UTF-16 units, a number of code points ends. */
export function unitsOf(text, codePoints, from = 0) {
  let at = from;
  for (let left = codePoints; left > 0 && at < text.length; left--) at += text.codePointAt(at) > 0xffff ? 2 : 1;
  return at;
}

/** The text as nodes, with what lies between two offsets in UTF-16 units marked. */
export function marked(text, start, end) {
  if (start === null || end <= start) return [text];
  return [text.slice(0, start), el("mark", {}, text.slice(start, end)), text.slice(end)].filter((part) => part !== "");
}

/** Tell screen readers. */
export function announce(text) {
  const live = byId("live");
  if (live.textContent !== text) live.textContent = text;
}

/** Whether a number of an answer is the one that was sent: whole ones beyond 2^53 lose digits in JavaScript. */
export const isExact = (value) => typeof value !== "number" || Number.isSafeInteger(value) || (Number.isFinite(value) && !Number.isInteger(value));

/** A single value of metadata as text. */
export const valueText = (value) => (isExact(value) ? String(value) : `≈ ${value}`);

export const INEXACT = "A browser cannot hold this number exactly, so it cannot filter by it; write the filter yourself";

export const count = (number, one, many = `${one}s`) => `${number.toLocaleString("en")} ${number === 1 ? one : many}`;

/** A function that runs once its last call is so many milliseconds ago; `waits()` says whether it is still to run. */
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

/** Whether the click asks for another tab or window, which is the browser's business. */
export const leavesPage = (event) =>
  event.defaultPrevented || event.button !== 0 || event.metaKey || event.ctrlKey || event.shiftKey || event.altKey;
