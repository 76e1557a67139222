/** The entry point: the search box and its options change the state, and the state selects a view. */

import { byId, debounced, el, leavesPage } from "./dom.js";
import * as documents from "./document.js";
import { open as openFilters, showActive, showPanel } from "./filters.js";
import "./keys.js";
import { loadCollections, clearProblem, servesNothing, showCollection, showProblem } from "./notices.js";
import * as search from "./search.js";
import * as similar from "./similar.js";
import { go, link, onChange, state } from "./state.js";
import "./token.js";

const TYPED_AFTER = 120; // milliseconds without another key
const LOOKED_AGAIN_AFTER = 2000; // milliseconds, while the server has no collection
const CHOICES_OF_K = [5, 10, 20, 50, 100];

const views = {
  search: () => search,
  similar: () => similar,
  compare: () => import("./compare.js"),
  space: () => import("./space.js"),
  card: () => import("./card.js"),
};
const query = byId("query");
let shownView = null;
let editing = false; // all keys of one edit make one entry of the history

async function show(now, before, backOrForward) {
  for (const link_ of byId("views").children) {
    link_.href = link({ view: link_.dataset.view, doc: "" });
    if (link_.dataset.view === now.view) link_.setAttribute("aria-current", "page");
    else link_.removeAttribute("aria-current");
  }
  if (query.value.trim() !== now.q && !typed.waits()) query.value = now.q;
  for (const radio of byId("mode").querySelectorAll("input")) radio.checked = radio.value === now.mode;
  showK(now.k);
  showCollection();
  showActive();
  showPanel();
  document.title = [now.view === "search" ? "" : now.view, now.q, "retriever"].filter(Boolean).join(" · ");
  document.body.dataset.view = now.view;
  documents.show(now);
  if (before && before.view !== now.view) clearProblem();
  try {
    const view = await views[now.view]();
    if (state() !== now) return;
    if (shownView !== view) shownView?.hide();
    shownView = view;
    for (const section of byId("main").children) section.hidden = section.dataset?.view !== now.view;
    if (before && before.view !== now.view && !backOrForward) scrollTo(0, 0);
    view.show(now);
  } catch (error) {
    showProblem(error);
  }
}

function showK(k) {
  const choices = CHOICES_OF_K.includes(k) ? CHOICES_OF_K : [...CHOICES_OF_K, k].sort((a, b) => a - b);
  byId("k").replaceChildren(...choices.map((one) => el("option", { value: one, selected: one === k }, String(one))));
}

/** The view that answers a query; the card and the similar documents do not. */
const answering = () => (["card", "similar"].includes(state().view) ? "search" : state().view);

function ask() {
  typed.cancel();
  const q = query.value.trim();
  if (q === state().q && answering() === state().view) return;
  const replace = editing || (!state().q && answering() === state().view);
  editing = true;
  go({ q, view: answering(), doc: "" }, { replace });
}

const typed = debounced(ask, TYPED_AFTER);
query.addEventListener("input", (event) => {
  if (!event.isComposing) typed();
});
query.addEventListener("compositionend", typed);
query.addEventListener("blur", () => (editing = false));
byId("form").addEventListener("submit", (event) => {
  event.preventDefault();
  ask();
  editing = false;
});
byId("mode").addEventListener("change", (event) => go({ mode: event.target.value }));
byId("k").addEventListener("change", (event) => go({ k: Number(event.target.value) }));
byId("filter-button").addEventListener("click", () => openFilters());
byId("views").addEventListener("click", (event) => {
  const view = event.target.closest("a")?.dataset.view;
  if (!view || leavesPage(event)) return;
  event.preventDefault();
  go({ view, doc: "" });
});

onChange(show);
if (!state().q && query.value) typed(); // typed before this script was loaded
show(state());
begin();

async function begin() {
  await loadCollections();
  search.forget();
  show(state());
  if (servesNothing()) setTimeout(begin, LOOKED_AGAIN_AFTER);
}
