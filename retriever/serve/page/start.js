/** The start screen: what the collection is, and queries to begin with. */

import { ask } from "./api.js";
import { count, el, leavesPage } from "./dom.js";
import { emptyCollection, servesNothing } from "./notices.js";
import { go, link } from "./state.js";

/** Title, description and size of a collection, and room for example queries. `collection` may still be unknown. */
export function startScreen(collection) {
  const { title, name, description, documents, problem } = collection ?? {};
  return [
    collection && el("h2", { class: "title", dir: "auto" }, title || name),
    description && el("p", { class: "description", dir: "auto" }, description),
    el("p", { class: "lead" }, "Search in your own words; hits appear as you type."),
    servesNothing() && el("p", { class: "note" }, "This server has no collection yet. One that is put into its folder appears here within seconds: ", el("code", {}, "retriever index SOURCE --index FOLDER/NAME")),
    documents === 0 && emptyCollection(),
    problem && el("p", { class: "note" }, problem),
    documents > 0 && examples(name),
    collection && el("p", { class: "facts" }, count(documents, "document")),
    el("p", { class: "soft keys-hint" }, el("kbd", {}, "/"), " search box ", el("kbd", {}, "↓"), " hits ", el("kbd", {}, "?"), " all keys"),
  ];
}

const known = new Map();

/** Links that search for examples. They are missing if the server cannot give any. */
function examples(name) {
  const list = el("ul", { class: "examples", "aria-label": "Examples" });
  if (!known.has(name)) {
    const asked = ask("v1/examples", { query: { collection: name } }).then(({ examples }) => examples);
    known.set(name, asked);
    asked.catch(() => known.delete(name));
  }
  known.get(name).then(
    (queries) => list.replaceChildren(...queries.map((q) => el("li", {}, queryLink(q)))),
    () => {},
  );
  return list;
}

/** A link that searches for another query. */
export function queryLink(q) {
  const search = (event) => {
    if (leavesPage(event)) return;
    event.preventDefault();
    go({ q });
    document.getElementById("main").focus({ preventScroll: true });
  };
  return el("a", { href: link({ q }), dir: "auto", onclick: search }, q);
}
