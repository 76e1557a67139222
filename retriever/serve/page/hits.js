/** A list of hits: title, score, passage with the best sentence marked, metadata as chips, actions. */

import { INEXACT, count, el, isExact, leavesPage, marked, unitsOf, valueText } from "./dom.js";
import { hasValue, toggle } from "./filters.js";
import { go, link } from "./state.js";

const FOLDED = 420; // characters of a folded passage
const BEFORE_MARK = 90;
const MOST_CHIPS = 8;
const LONGEST_CHIP = 48;
const LONGEST_TITLE = 200;

/** Create the list of hits; `scale` converts a score into the length of its bar, from 0 to 1. */
export function hitList(hits, scale, label) {
  return el("ol", { class: "hits", "aria-label": label }, ...hits.map((hit) => hitItem(hit, scale)));
}

/** Cosines are shown as they are; scores without an upper limit relative to the best of the list. */
export function scaleOf(hits, mode) {
  const best = Math.max(...hits.map((hit) => hit.score), 0);
  return mode === "dense" ? (score) => score : (score) => (best > 0 ? score / best : 0);
}

/** Mark the sentences in an existing list; return false if it shows other hits. */
export function markSentences(list, hits) {
  const items = [...(list?.children ?? [])];
  if (items.length !== hits.length || items.some((item, i) => item.hit.id !== hits[i].id)) return false;
  items.forEach((item, i) => {
    item.hit = hits[i];
    fillPassage(item);
  });
  return true;
}

function hitItem(hit, scale) {
  const passage = el("p", { class: "passage", dir: "auto" });
  const item = el(
    "li",
    { class: "hit" },
    el("span", { class: "rank", "aria-hidden": "true" }, String(hit.rank)),
    el(
      "div",
      { class: "what" },
      el("h3", {}, documentLink(hit)),
      hit.title && hit.title !== hit.id && el("bdi", { class: "id" }, hit.id),
    ),
    scoreBar(hit.score, scale(hit.score)),
    passage,
    el(
      "div",
      { class: "foot" },
      el("div", { class: "chips" }, ...chips(hit.metadata)),
      el("div", { class: "then" }, el("button", { type: "button", class: "fold", hidden: true, onclick: () => fold(item) }), similarLink(hit)),
    ),
  );
  item.hit = hit;
  item.folded = true;
  fillPassage(item);
  return item;
}

/** The title or id of a document, shortened. */
export function called({ id, title }) {
  const call = title || id;
  return call.length > 1.2 * LONGEST_TITLE ? `${call.slice(0, atSpace(call, LONGEST_TITLE))} …` : call;
}

/** A link with the document's title that opens it. */
export function documentLink(hit, attributes = {}) {
  const open = (event) => {
    if (leavesPage(event)) return;
    event.preventDefault();
    go({ doc: hit.id });
    event.currentTarget.dispatchEvent(new CustomEvent("opened", { bubbles: true, detail: hit }));
  };
  return el("a", { class: "open", href: link({ doc: hit.id }), dir: "auto", onclick: open, ...attributes }, called(hit));
}

export function similarLink(hit, text = "Similar") {
  const show = (event) => {
    if (leavesPage(event)) return;
    event.preventDefault();
    go({ view: "similar", id: hit.id, doc: "" });
  };
  const href = link({ view: "similar", id: hit.id, doc: "" });
  return el("a", { class: "similar", href, onclick: show, "aria-label": `Documents similar to ${called(hit)}` }, text);
}

export function scoreBar(score, length) {
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span"));
  bar.firstChild.style.width = `${100 * Math.min(Math.max(length, 0), 1)}%`;
  return el("div", { class: "score" }, bar, el("span", { class: "hidden" }, "score "), el("span", { class: "number" }, score.toFixed(3)));
}

/** Show the passage; if it is long and folded, only the part around the marked sentence. */
function fillPassage(item) {
  const { hit, folded } = item;
  const text = hit.passage;
  const start = hit.highlight ? unitsOf(text, hit.highlight[0]) : null;
  const end = hit.highlight ? unitsOf(text, hit.highlight[1] - hit.highlight[0], start) : null;
  const long = text.length > FOLDED * 1.2;
  const button = item.querySelector(".fold");
  button.hidden = !long;
  button.textContent = folded ? "More" : "Less";
  button.setAttribute("aria-expanded", String(!folded));
  button.setAttribute("aria-label", `${folded ? "More" : "Less"} of ${called(hit)}`);
  let nodes = marked(text, start, end);
  if (long && folded) {
    const from = start !== null && end > FOLDED ? atSpace(text, Math.max(0, start - BEFORE_MARK)) : 0;
    const to = atSpace(text, Math.min(text.length, Math.max(from + FOLDED, Math.min(end ?? 0, from + 3 * FOLDED))));
    nodes = marked(text.slice(from, to), start === null ? null : start - from, Math.min(end, to) - from);
    nodes = [from > 0 && "… ", ...nodes, to < text.length && " …"].filter(Boolean);
  }
  const passage = item.querySelector(".passage");
  passage.classList.toggle("whole", !folded);
  passage.replaceChildren(...nodes);
}

/** Return the position of the next space, so that no word and no surrogate pair is cut. */
function atSpace(text, at) {
  if (at === 0 || at >= text.length) return at;
  const space = text.slice(at, at + 40).search(/\s/);
  if (space >= 0) return at + space;
  const unit = text.charCodeAt(at);
  return unit >= 0xdc00 && unit <= 0xdfff ? at + 1 : at;
}

export function fold(item) {
  item.folded = !item.folded;
  fillPassage(item);
}

/** The metadata as chips; a click filters by the value. */
function chips(metadata) {
  const pairs = [...flat(metadata)];
  const short = pairs.filter(([, value]) => String(value).length <= LONGEST_CHIP);
  const shown = short.slice(0, MOST_CHIPS).map(([name, value]) => {
    if (!isExact(value)) return el("span", { class: "chip plain", title: INEXACT }, el("bdi", { class: "name" }, name), el("bdi", {}, valueText(value)));
    const on = hasValue(name, value);
    return el(
      "button",
      {
        type: "button",
        class: "chip",
        "aria-pressed": String(on),
        title: on ? "Remove this filter" : "Show only documents with this value",
        onclick: () => toggle(name, value),
      },
      el("bdi", { class: "name" }, name),
      el("bdi", {}, String(value)),
    );
  });
  const left = pairs.length - shown.length;
  return left > 0 ? [...shown, el("span", { class: "soft" }, count(left, "other field"))] : shown;
}

function* flat(value, name = "") {
  if (Array.isArray(value)) for (const one of value) yield* flat(one, name);
  else if (value && typeof value === "object")
    for (const [key, one] of Object.entries(value)) yield* flat(one, name ? `${name}.${key}` : key);
  else if (value !== null && value !== "" && name) yield [name, value];
}
