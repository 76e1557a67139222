/** The search view: hits while the user types. The best sentences are marked a moment later. */

import { ask, isAbort } from "./api.js";
import { announce, byId, count, el, fill } from "./dom.js";
import { hitList, markSentences } from "./hits.js";
import { clearProblem, collectionNamed, emptyCollection, isEmpty, noteGeneration, showProblem } from "./notices.js";
import { queryLink, startScreen } from "./start.js";

const MARKED_AFTER = 150; // milliseconds without another key

const view = byId("view-search");
const note = el("div", { class: "note", role: "note", hidden: true });
const summary = el("p", { class: "summary" });
const meant = el("p", { class: "meant", hidden: true });
const results = el("div", { class: "results" });
const empty = el("div", { class: "empty" });
view.append(summary, meant, note, results, empty);

let shown = ""; // the request that the results answer
let asking = null;

export const request = ({ q, collection, k, mode, where }) => ({
  query: q,
  ...(collection && { collection }),
  k,
  mode,
  where,
});

export async function show(state) {
  const wanted = JSON.stringify(request(state));
  if (wanted === shown) return;
  asking?.abort();
  const { signal } = (asking = new AbortController());
  shown = wanted;
  if (!state.q.trim()) return showNothing(state);
  busy(true);
  try {
    const atOnce = state.mode === "lexical";
    const answer = await ask("v1/search", { body: { ...request(state), highlight: atOnce }, signal });
    const nothing = !answer.hits.length && !state.where.length && (await isEmpty(state.collection));
    signal.throwIfAborted();
    clearProblem();
    showAnswer(answer, request(state), nothing);
    busy(false);
    noteGeneration(answer.generation);
    if (atOnce || !answer.hits.length) return;
    await new Promise((resolve) => setTimeout(resolve, MARKED_AFTER));
    signal.throwIfAborted();
    const sure = await ask("v1/search", { body: { ...request(state), highlight: true }, signal });
    if (!markSentences(results.firstElementChild, sure.hits)) showAnswer(sure, request(state));
    view.dataset.marked = state.q;
  } catch (error) {
    if (isAbort(error)) return;
    shown = "";
    results.classList.add("stale");
    showProblem(error);
  } finally {
    if (!signal.aborted) {
      asking = null;
      busy(false);
    }
  }
}

/** Show the start page again, now that the collections are known. */
export function forget() {
  if (empty.childElementCount && !results.childElementCount) shown = "";
}

export function hide() {
  asking?.abort();
  if (asking) shown = "";
  asking = null;
  busy(false);
}

function busy(on) {
  byId("busy").classList.toggle("on", on);
  results.setAttribute("aria-busy", String(on));
}

function showAnswer({ query, mode, hits, novelty, limit, strange, note: told, suggestion, took_ms: took }, body, nothing = false) {
  const by = { dense: "meaning", lexical: "words", hybrid: "meaning and words" }[mode];
  empty.replaceChildren();
  delete view.dataset.marked;
  results.classList.remove("stale");
  results.replaceChildren(...(hits.length ? [hitList(hits, `Hits for ${query}`, explainer(body))] : []));
  fill(
    summary,
    hits.length ? `${count(hits.length, "hit")} by ${by}` : `Nothing found by ${by}.`,
    el("span", { class: "soft" }, ` in ${took < 10 ? took.toFixed(1) : Math.round(took)} ms`),
    hits.length > 0 && told && `. ${told}`,
  );
  meant.hidden = !suggestion;
  if (suggestion) fill(meant, "Did you mean: ", queryLink(suggestion), "?");
  note.hidden = !strange;
  fill(
    note,
    el("strong", {}, "Unusual query. "),
    "It is unlike the texts of this collection, so the hits may be irrelevant",
    strange && el("span", { class: "soft" }, ` (${novelty.toFixed(2)} bits per dimension; ordinary text stays below ${limit.toFixed(2)})`),
    ".",
  );
  if (nothing) empty.append(emptyCollection());
  else if (!hits.length) empty.append(el("p", {}, mode === "lexical" ? `${told} Try searching by meaning.` : "No document matches the filters."));
  announce(
    [
      `${hits.length ? count(hits.length, "hit") : "No hits"} for ${query}.`,
      hits.length > 0 && told,
      nothing && "The collection is empty.",
      strange && "The query is unlike the texts of this collection.",
      suggestion && `Did you mean: ${suggestion}?`,
    ]
      .filter(Boolean)
      .join(" "),
  );
}

/** Return a function that shows or hides why a hit was found. One request explains all hits of an answer. */
function explainer(body) {
  let explanations = null;
  const explain = async () => {
    const { hits } = await ask("v1/search", { body: { ...body, explain: true } });
    return new Map(hits.map((hit) => [hit.id, hit.explanation]));
  };
  return async (item) => {
    try {
      const { toggle } = await import("./why.js");
      await toggle(item, () => (explanations ??= explain()));
    } catch (error) {
      explanations = null;
      showProblem(error);
    }
  };
}

function showNothing(state) {
  clearProblem();
  busy(false);
  summary.replaceChildren();
  note.hidden = meant.hidden = true;
  results.replaceChildren();
  results.classList.remove("stale");
  fill(empty, ...startScreen(collectionNamed(state.collection)));
}
