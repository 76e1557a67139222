/**
 * The compare view: rankings of one query side by side, with lines between equal documents. If the collection has a
 * transform, they are by raw vectors and by the index. Otherwise they are by meaning, by both, and by words.
 */

import { ask, isAbort } from "./api.js";
import { announce, byId, count, el, fill, svg } from "./dom.js";
import { called, documentLink } from "./hits.js";
import { clearProblem, collectionNamed, collectionsKnown, emptyCollection, isEmpty, noteGeneration, showProblem } from "./notices.js";
import { request } from "./search.js";
import { state as now } from "./state.js";

const LOOKED_AT = 100; // hits requested of each ranking, to know the new rank of documents that left the list
const CURVED = 0.45; // share of the gap between the lists

const SPACES = [{ space: "raw" }, { space: "index" }];
const WAYS = [{ mode: "dense" }, { mode: "hybrid" }, { mode: "lexical" }];

const view = byId("view-compare");
document.head.append(el("link", { rel: "stylesheet", href: "compare.css" }));
const summary = el("div", { class: "summary" });
const empty = el("div", { class: "empty" });
const board = el("div", { class: "board", hidden: true });
view.append(summary, empty, board);

let shown = "";
let asking = null;

export async function show(state) {
  await collectionsKnown();
  if (state !== now()) return;
  const transform = collectionNamed(state.collection)?.transform ?? "";
  const byWays = /^none\b/.test(transform);
  document.body.classList.toggle("by-ways", byWays);
  // Searching by words does not depend on the vectors.
  const mode = state.mode === "lexical" || byWays ? "dense" : state.mode;
  const body = { ...request(state), mode };
  const wanted = JSON.stringify([body, byWays || state.mode]);
  if (wanted === shown) return;
  hide();
  shown = wanted;
  empty.textContent = state.q.trim() ? "" : `Type a query to compare its rankings ${byWays ? "by meaning, by words, and by both" : "by the encoder's raw vectors and by the index"}.`;
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
    const answers = await Promise.all((byWays ? WAYS : SPACES).map((way) => ask("v1/search", { body: { ...body, ...way, k: far }, signal })));
    const none = answers.every(({ hits }) => !hits.length);
    const nothing = none && !state.where.length && (await isEmpty(state.collection));
    signal.throwIfAborted();
    clearProblem();
    if (none) showNone(nothing ? emptyCollection() : "No document matches the filters.");
    else (byWays ? showWays : showSpaces)(answers.map(({ hits }) => hits), state, transform);
    noteGeneration(answers[1].generation);
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

const ranksOf = (hits) => new Map(hits.map((hit) => [hit.id, hit.rank]));

/** Rankings by raw vectors and by the index. */
function showSpaces([raw, index], { k, mode }, transform) {
  const [rawRank, indexRank] = [ranksOf(raw), ranksOf(index)];
  const left = raw.slice(0, k);
  const right = index.slice(0, k);
  put([
    side("Raw", "the encoder's raw vectors", left.map((hit) => entry(hit, leaving(indexRank.get(hit.id), k)))),
    side("Index", transform ? `through ${transform}` : "through the transform", right.map((hit) => entry(hit, arriving(hit, rawRank.get(hit.id), k)))),
  ]);
  describe(left, right, rawRank, mode);
}

/** Rankings by meaning, by both, and by words. The ranking by both is in the middle, because it joins the others. */
function showWays([meaning, both, words], { k }) {
  const [byMeaning, byBoth, byWords] = [meaning, both, words].map(ranksOf);
  const joined = both.slice(0, k).map((hit) => entry(hit, origin(byMeaning.get(hit.id), byWords.get(hit.id))));
  const alone = (hits) => hits.slice(0, k).map((hit) => entry(hit, leaving(byBoth.get(hit.id), k)));
  put([side("Meaning", "by vectors", alone(meaning)), side("Both", "with ranks by meaning | words", joined), side("Words", "by BM25", alone(words))]);
  const within = (ranks) => both.slice(0, k).filter(({ id }) => ranks.get(id) <= k).length;
  const told = `Of ${count(joined.length, "hit")} by both, ${within(byMeaning)} are among the first ${k} by meaning and ${within(byWords)} among the first ${k} by words.`;
  fill(summary, told, el("span", { class: "soft" }, " The collection has no transform, so there are no raw vectors to compare with."), !words.length && el("span", { class: "soft" }, " No document has a word of the query."));
  announce(told);
}

function put(lists) {
  board.replaceChildren(...lists.flatMap((list, place) => (place ? [svg("svg", { class: "moves", "aria-hidden": "true" }), list] : [list])));
  board.classList.toggle("three", lists.length === 3);
  board.classList.remove("stale");
  board.hidden = false;
  draw();
}

/** Where a document of the ranking by both is in the others. */
function origin(meaning, words) {
  const said = (rank, way) => (rank === undefined ? `not found by ${way}` : `rank ${rank} by ${way}`);
  return { kind: "same", text: `${meaning ?? "–"} | ${words ?? "–"}`, said: `${said(meaning, "meaning")}, ${said(words, "words")}` };
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
    move && el("span", { class: `move ${move.kind}`, title: move.said }, el("span", { "aria-hidden": "true" }, move.text), el("span", { class: "hidden" }, move.said)),
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

/** Draw lines between equal documents of neighbouring lists. */
function draw() {
  if (board.hidden) return;
  const lists = board.querySelectorAll("ol");
  board.querySelectorAll(".moves").forEach((lines, place) => drawBetween(lines, lists[place], lists[place + 1]));
}

function drawBetween(lines, left, right) {
  const box = lines.getBoundingClientRect();
  if (!box.width) return;
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

function describe(left, right, rawRank, mode) {
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
  );
  announce(told);
}
