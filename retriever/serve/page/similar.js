/** The view of documents similar to a stored one. */

import { ask, isAbort, isFolder, storedDocument } from "./api.js";
import { announce, byId, count, el, fill, leavesPage } from "./dom.js";
import { called, documentLink, hitList } from "./hits.js";
import { clearProblem, showProblem } from "./notices.js";
import { go, link } from "./state.js";

const view = byId("view-similar");
const title = el("p", { class: "summary" });
const results = el("div", { class: "results" });
view.append(title, results);

let shown = "";
let asking = null;

export async function show({ id, q, collection, k, where }) {
  const body = { id, ...(collection && { collection }), k, where };
  if (JSON.stringify(body) === shown) return;
  hide();
  shown = JSON.stringify(body);
  const { signal } = (asking = new AbortController());
  try {
    const [{ hits }, { title: call }] = await Promise.all([
      ask("v1/similar", { body, signal }),
      isFolder(id) ? {} : storedDocument(id, collection, signal),
    ]);
    clearProblem();
    results.classList.remove("stale");
    fill(
      title,
      q && backLink(),
      `${count(hits.length, "document")} most similar to `,
      documentLink({ id, title: call }, { class: "" }),
    );
    results.replaceChildren(hitList(hits, `Documents similar to ${called({ id, title: call })}`));
    announce(`${count(hits.length, "document")} similar to ${called({ id, title: call })}.`);
  } catch (error) {
    if (isAbort(error)) return;
    shown = "";
    title.replaceChildren();
    results.classList.add("stale");
    showProblem(error);
  }
}

function backLink() {
  const back = (event) => {
    if (leavesPage(event)) return;
    event.preventDefault();
    go({ view: "search" });
  };
  return el("a", { class: "back", href: link({ view: "search" }), onclick: back }, "← Hits");
}

export function hide() {
  asking?.abort();
  asking = null;
}
