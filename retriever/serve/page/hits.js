/** A list of hits: title, relevance, passage with the best sentence marked, metadata as chips, actions. */

import { INEXACT, count, el, isExact, leavesPage, marked, unitsOf, valueText } from "./dom.js";
import { hasValue, toggle } from "./filters.js";
import { isMarkdown, isWeb, rendered, webLink } from "./markdown.js";
import { go, link } from "./state.js";

const FOLDED = 420; // characters of a folded passage
const BEFORE_MARK = 90;
const MOST_CHIPS = 8;
const LONGEST_CHIP = 48;
const LONGEST_TITLE = 200;

/** Create the list of hits. If `explain` is given, each hit has a button that calls it with its item. */
export function hitList(hits, label, explain) {
  return el("ol", { class: "hits", "aria-label": label }, ...hits.map((hit) => hitItem(hit, explain)));
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

/** The web page that a document was taken from, if its metadata name one. */
const SOURCES = ["url", "link", "href", "source", "source_url", "website"];
export const sourceOf = (metadata) => SOURCES.map((name) => metadata?.[name]).find(isWeb);

/** Where the passage is in its file, if that says more than the id: line, page and headings. */
export function placeOf({ id, place }) {
  const { file, line, page, headings } = place ?? {};
  const where = file && line ? `${file}:${line}` : file;
  const parts = [where !== id && where, page && `page ${page}`, headings?.length && headings.join(" › ")];
  return parts.filter(Boolean).join(", ");
}

function hitItem(hit, explain) {
  const passage = el("div", { class: "passage", dir: "auto" });
  const item = el(
    "li",
    { class: "hit" },
    el("span", { class: "rank", "aria-hidden": "true" }, String(hit.rank)),
    el(
      "div",
      { class: "what" },
      el("h3", {}, documentLink(hit)),
      hit.title && hit.title !== hit.id && !placeOf(hit).startsWith(hit.id) && el("bdi", { class: "id" }, hit.id),
      placeOf(hit) && opening(hit, el("a", { class: "id place", href: placeLink(hit), title: "Show this place in the document" }, el("bdi", {}, placeOf(hit)))),
      sourceOf(hit.metadata) && webLink(sourceOf(hit.metadata), el("span", { class: "id source" }, new URL(sourceOf(hit.metadata)).host)),
    ),
    el("div", { class: "score", title: "Relevance, 0 to 100" }, ...strength(hit.relevance, "relevance ")),
    passage,
    el(
      "div",
      { class: "foot" },
      el("div", { class: "chips" }, ...chips(hit.metadata)),
      el(
        "div",
        { class: "then" },
        el("button", { type: "button", class: "fold", hidden: true, onclick: () => fold(item) }),
        explain && el("button", { type: "button", class: "why", "aria-expanded": "false", "aria-label": `Why? ${called(hit)}`, onclick: () => explain(item) }, "Why?"),
        similarLink(hit),
      ),
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

/** The part of a document that a hit is, as the address names it. */
const partOf = ({ start, end }) => (end === undefined ? "" : `${start}-${end}`);
const placeLink = (hit) => link({ doc: hit.id, part: partOf(hit) });

/** A link with the document's title that opens it where the hit is. */
export function documentLink(hit, attributes = {}) {
  return opening(hit, el("a", { class: "open", href: placeLink(hit), dir: "auto", ...attributes }, called(hit)));
}

function opening(hit, anchor) {
  anchor.addEventListener("click", (event) => {
    if (leavesPage(event)) return;
    event.preventDefault();
    go({ doc: hit.id, part: partOf(hit) });
  });
  return anchor;
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

/** A number from 0 to 100 as a bar and as text; `called` names it for screen readers. */
export function strength(number, called) {
  const bar = el("span", { class: "bar", "aria-hidden": "true" }, el("span"));
  bar.firstChild.style.width = `${Math.min(Math.max(number, 0), 100)}%`;
  return [bar, el("span", { class: "hidden" }, called), el("span", { class: "number" }, String(Math.round(number)))];
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
  const markdown = isMarkdown(hit.metadata);
  const show = markdown ? rendered : marked;
  let nodes = show(text, start, end);
  if (long && folded) {
    const from = start !== null && end > FOLDED ? atSpace(text, Math.max(0, start - BEFORE_MARK)) : 0;
    const to = atSpace(text, Math.min(text.length, Math.max(from + FOLDED, Math.min(end ?? 0, from + 3 * FOLDED))));
    nodes = show(text.slice(from, to), start === null ? null : start - from, Math.min(end, to) - from);
    nodes = [from > 0 && "… ", ...nodes, to < text.length && " …"].filter(Boolean);
  }
  const passage = item.querySelector(".passage");
  passage.classList.toggle("whole", !folded);
  passage.classList.toggle("markdown", markdown);
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
    if (isWeb(value)) return el("span", { class: "chip plain" }, el("bdi", { class: "name" }, name), webLink(value, el("bdi", {}, value)));
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
