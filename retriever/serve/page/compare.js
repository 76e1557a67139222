/** The compare view: the rankings of a query by raw vectors and by the index, side by side, with lines between equal documents. */

import { ask, isAbort } from "./api.js";
import { announce, byId, count, el, fill, svg } from "./dom.js";
import { called, documentLink } from "./hits.js";
import { clearProblem, collectionNamed, collectionsKnown, emptyCollection, isEmpty, noteGeneration, showProblem } from "./notices.js";
import { request } from "./search.js";

const LOOKED_AT = 100; // hits requested of each ranking, to know the new rank of documents that left the list
const CURVED = 0.45; // share of the gap between the lists

const view = byId("view-compare");
document.head.append(el("link", { rel: "stylesheet", href: "compare.css" }));
const summary = el("div", { class: "summary" });
const empty = el("div", { class: "empty" });
const board = el("div", { class: "board", hidden: true });
view.append(summary, empty, board);

let shown = "";
let asking = null;

export async function show(state) {
  // Searching by words does not depend on the vectors.
  const mode = state.mode === "lexical" ? "dense" : state.mode;
  const body = { ...request(state), mode };
  const wanted = JSON.stringify([body, state.mode]);
  if (wanted === shown) return;
  hide();
  shown = wanted;
  empty.textContent = state.q.trim() ? "" : "Type a query to compare its ranking by the encoder's raw vectors with the index's ranking.";
  empty.hidden = Boolean(state.q.trim());
  if (!state.q.trim()) {
    board.hidden = true;
    summary.replaceChildren();
    clearProblem();
    return;
  }
  const { signal } = (asking = new AbortController());
  byId("busy").classList.add("on");
  try {
    const far = Math.max(body.k, LOOKED_AT);
    const both = ["raw", "index"].map((space) => ask("v1/search", { body: { ...body, k: far, space }, signal }));
    const [raw, index] = await Promise.all([...both, collectionsKnown()]);
    const none = !raw.hits.length && !index.hits.length;
    const nothing = none && !state.where.length && (await isEmpty(state.collection));
    signal.throwIfAborted();
    clearProblem();
    if (none) showNone(nothing ? emptyCollection() : "No document matches the filters.");
    else showRankings(raw.hits, index.hits, state);
    noteGeneration(index.generation);
  } catch (error) {
    if (isAbort(error)) return;
    shown = "";
    board.classList.add("stale");
    showProblem(error);
  } finally {
    if (!signal.aborted) byId("busy").classList.remove("on");
  }
}

export function hide() {
  asking?.abort();
  asking = null;
  byId("busy").classList.remove("on");
}

function showNone(why) {
  board.hidden = true;
  summary.replaceChildren();
  fill(empty, why).hidden = false;
  announce(empty.textContent);
}

function showRankings(raw, index, { k, mode, collection }) {
  const rawRank = new Map(raw.map((hit) => [hit.id, hit.rank]));
  const indexRank = new Map(index.map((hit) => [hit.id, hit.rank]));
  const left = raw.slice(0, k);
  const right = index.slice(0, k);
  const transform = collectionNamed(collection)?.transform ?? "";
  const lists = [
    side("Raw", "the encoder's raw vectors", left.map((hit) => entry(hit, leaving(indexRank.get(hit.id), k)))),
    side("Index", transform ? `through ${transform}` : "through the transform", right.map((hit) => entry(hit, arriving(hit, rawRank.get(hit.id), k)))),
  ];
  board.replaceChildren(lists[0], svg("svg", { class: "moves", "aria-hidden": "true" }), lists[1]);
  board.classList.remove("stale");
  board.hidden = false;
  describe(left, right, rawRank, mode, transform);
  draw();
}

function side(name, what, entries) {
  return el("section", { "aria-label": `${name} ranking` }, el("h3", {}, name, el("small", {}, ` ${what}`)), el("ol", {}, ...entries));
}

/** How the rank of a document of the raw ranking changed. */
function leaving(rank, k) {
  if (rank === undefined) return { kind: "gone", text: "gone", said: "no longer among the best hits" };
  return rank > k ? { kind: "gone", text: `now ${rank}`, said: `now at rank ${rank}` } : null;
}

/** How the rank of a document of the index's ranking changed. */
function arriving(hit, rank, k) {
  if (rank === undefined) return { kind: "new", text: "new", said: "new" };
  if (rank > k) return { kind: "new", text: `was ${rank}`, said: `new, it was at rank ${rank}` };
  const up = rank - hit.rank;
  if (up === 0) return { kind: "same", text: "=", said: "at the same rank" };
  return up > 0
    ? { kind: "up", text: `▲ ${up}`, said: `${up} up, from rank ${rank}` }
    : { kind: "down", text: `▼ ${-up}`, said: `${-up} down, from rank ${rank}` };
}

function entry(hit, move) {
  const item = el(
    "li",
    { class: "compared", onpointerenter: () => light(hit.id), onpointerleave: () => light(null), onfocusin: () => light(hit.id), onfocusout: () => light(null) },
    el("span", { class: "rank" }, String(hit.rank)),
    documentLink(hit),
    move && el("span", { class: `move ${move.kind}` }, el("span", { "aria-hidden": "true" }, move.text), el("span", { class: "hidden" }, move.said)),
    el("span", { class: "peek", dir: "auto", "aria-hidden": "true" }, hit.passage.slice(0, 200)),
  );
  item.hit = hit;
  item.kind = move?.kind ?? "";
  return item;
}

/** Highlight a document in both lists. */
function light(id) {
  for (const one of board.querySelectorAll("li, path")) one.classList.toggle("lit", id !== null && (one.hit?.id ?? one.dataset.id) === id);
}

/** Draw lines between equal documents. */
function draw() {
  const lines = board.querySelector(".moves");
  if (!lines || board.hidden) return;
  const box = lines.getBoundingClientRect();
  if (!box.width) return;
  const [left, right] = board.querySelectorAll("ol");
  const middle = (item) => {
    const { top, height } = item.getBoundingClientRect();
    return top + height / 2 - box.top;
  };
  const starts = new Map([...left.children].map((item) => [item.hit.id, middle(item)]));
  const bend = box.width * CURVED;
  const paths = [...right.children].flatMap((item) => {
    const from = starts.get(item.hit.id);
    if (from === undefined) return [];
    const to = middle(item);
    const shape = `M0 ${from}C${bend} ${from} ${box.width - bend} ${to} ${box.width} ${to}`;
    return [svg("path", { d: shape, class: item.kind, "data-id": item.hit.id })];
  });
  lines.setAttribute("viewBox", `0 0 ${box.width} ${box.height}`);
  lines.replaceChildren(...paths);
}

new ResizeObserver(draw).observe(board);
document.fonts?.ready.then(draw);

function describe(left, right, rawRank, mode, transform) {
  const before = new Set(left.map((hit) => hit.id));
  const stayed = right.filter((hit) => before.has(hit.id));
  const moved = stayed.filter((hit) => rawRank.get(hit.id) !== hit.rank);
  const most = moved.reduce((a, b) => (Math.abs(rawRank.get(b.id) - b.rank) > Math.abs(rawRank.get(a.id) - a.rank) ? b : a), moved[0]);
  const fresh = right.length - stayed.length;
  const same = !moved.length && !fresh;
  const told = same
    ? "Both rankings are the same."
    : `${count(stayed.length, "document")} in both, ${moved.length} of them moved; ${fresh} new, ${left.length - stayed.length} gone.`;
  fill(
    summary,
    el("span", {}, told),
    most && el("span", { class: "soft" }, ` Largest move: ${called(most)}, from ${rawRank.get(most.id)} to ${most.rank}.`),
    mode === "lexical" && el("span", { class: "soft" }, " Compared by meaning, because searching by words does not depend on the vectors."),
    same && /^none\b/.test(transform) && el("span", { class: "soft" }, " The collection has no transform, so the index uses the raw vectors."),
  );
  announce(told);
}
