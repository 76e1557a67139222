/** Messages: problems, an unreachable or busy server. Also the list of collections. */

import { ask, isAbort, server, tryNow } from "./api.js";
import { byId, el } from "./dom.js";
import { showActive, showPanel } from "./filters.js";
import { go, state } from "./state.js";

const OF_A_FILTER = /^(?:body\.)?where(?:\.(\d+))?/; // with its number, if the server gives it

let collections = [];
let known = false; // whether the server has told its collections

export const collectionNamed = (name) => collections.find((one) => (name ? one.name === name : one.default)) ?? (name ? null : collections[0]);

/** Show a problem below the search box, with the field that it concerns. */
export function showProblem(problem) {
  const errors = problem.errors?.length ? problem.errors : [{ field: "", reason: problem.message }];
  const told = errors.map(({ field, reason }) =>
    el("p", {}, field && el("strong", {}, `${plain(field)}: `), el("span", { class: "problem-text" }, String(reason))),
  );
  byId("problem").replaceChildren(...told);
  const fields = errors.map(({ field }) => String(field));
  byId("query").setAttribute("aria-invalid", String(fields.some((field) => /query/.test(field))));
  showActive(fields.some((field) => OF_A_FILTER.test(field)) ? (filter, number) => errors.some((error) => isNamed(filter, number, error)) : undefined);
}

/** Whether an error concerns this filter: by its number, its text, its field, or because it is the only one. */
function isNamed(filter, number, { field, reason }) {
  const of = OF_A_FILTER.exec(field);
  if (!of) return false;
  if (of[1] !== undefined) return Number(of[1]) === number;
  if (state().where.length === 1 || reason.includes(filter)) return true;
  const name = /^\s*(?:'([^']*)'|"([^"]*)"|([^\s=!<>]+))/.exec(filter)?.slice(1).find(Boolean);
  return Boolean(name) && reason.includes(`'${name}'`) && !reason.split("There are")[1]?.includes(`'${name}'`);
}

const plain = (field) => String(field).replace(/^body\.?/, "").replace(/^where.*/, "Filter").replace(/^query$/, "Query").replace(/^k$/, "Hits");

export function clearProblem() {
  if (!byId("problem").childElementCount) return;
  byId("problem").replaceChildren();
  byId("query").removeAttribute("aria-invalid");
  showActive();
}

/** The message for a collection without documents. */
export const emptyCollection = () => el("p", {}, "This collection is empty. Add documents with ", el("code", {}, "retriever add SOURCE --index FOLDER"), ".");

/** Whether the server has no collection, e.g. because its folder is still empty. */
export const servesNothing = () => known && !collections.length;

/** Whether the collection has no documents now; asks the server, because this may change while the page is open. */
export async function isEmpty(name) {
  await loadCollections();
  return collectionNamed(name)?.documents === 0;
}

let generation = null;

/** Reload counts and filters if the collection has changed. */
export function noteGeneration(number) {
  if (number === undefined || number === generation) return;
  const changed = generation !== null;
  generation = number;
  if (changed) loadCollections();
  showPanel(number);
}

let loading = null;

/** Load the collections for the selector. */
export const loadCollections = () => (loading = load());

/** A promise that resolves when the collections are loaded. */
export const collectionsKnown = () => loading;

async function load() {
  try {
    ({ collections } = await ask("v1/collections"));
    known = true;
  } catch (error) {
    if (!isAbort(error)) showProblem(error);
    return;
  }
  const several = collections.length > 1;
  const select = byId("collection");
  select.replaceChildren(...collections.map(({ name, title, default: first }) => el("option", { value: first ? "" : name }, title || name)));
  select.hidden = byId("collection-label").hidden = !several;
  byId("only-collection").textContent = several ? "" : collections[0]?.title || (collections[0]?.name ?? "");
  showCollection();
}

export function showCollection() {
  const name = collectionNamed(state().collection);
  const select = byId("collection");
  if (name) select.value = name.default ? "" : name.name;
  else select.selectedIndex = -1;
}

byId("collection").addEventListener("change", (event) => {
  generation = null;
  const { view } = state();
  go({ collection: event.target.value, where: [], doc: "", id: "", colour: "", at: "", view: view === "similar" ? "search" : view });
});

let ticking = 0;

function waitNotice(text, seconds) {
  const left = el("span", { "aria-hidden": "true" });
  const until = Date.now() + 1000 * seconds;
  const tick = () => {
    const rest = Math.ceil((until - Date.now()) / 1000);
    left.textContent = rest > 0 ? ` Next try in ${rest} s.` : " Trying …";
  };
  clearInterval(ticking);
  ticking = setInterval(tick, 500);
  tick();
  const now = el("button", { type: "button", class: "quiet", onclick: tryNow }, "Try now");
  const box = byId("connection");
  const focused = box.contains(document.activeElement);
  const said = box.firstElementChild;
  if (!box.hidden && said?.textContent === text) box.replaceChildren(said, left, now);
  else box.replaceChildren(el("span", {}, text), left, now);
  box.hidden = false;
  if (focused) now.focus();
}

server.addEventListener("gone", ({ detail }) =>
  waitNotice("The server cannot be reached. Your input is kept, and the page continues when the server is back.", detail.seconds),
);
server.addEventListener("busy", ({ detail }) => waitNotice(`The server is busy: ${detail.why}`, detail.seconds));
server.addEventListener("back", () => {
  clearInterval(ticking);
  const box = byId("connection");
  if (box.contains(document.activeElement)) byId("query").focus();
  box.hidden = true;
  box.replaceChildren();
});
