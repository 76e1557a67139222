/** The card view: the collection's card as rendered by the server. */

import { fetched, isAbort } from "./api.js";
import { announce, byId, el } from "./dom.js";
import { showProblem } from "./notices.js";

const view = byId("view-card");
document.head.append(el("link", { rel: "stylesheet", href: "card.css" }));

let asking = null;

export async function show({ collection }) {
  if (asking?.collection === collection) return;
  hide();
  asking = Object.assign(new AbortController(), { collection });
  const { signal } = asking;
  if (!view.childElementCount) view.append(el("p", { class: "empty" }, "Reading the collection …"));
  try {
    const answer = await fetched("v1/card.html", { query: { collection, part: "true" }, signal });
    const article = new DOMParser().parseFromString(await answer.text(), "text/html").querySelector("article.card");
    view.replaceChildren(document.adoptNode(article));
    announce("The card of the collection.");
  } catch (error) {
    if (isAbort(error)) return;
    asking = null;
    view.replaceChildren();
    showProblem(error);
  }
}

export function hide() {
  asking?.abort();
  asking = null;
}
