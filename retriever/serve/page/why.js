/** Why a hit was found: what meaning and words found, and how they were combined. Loaded when it is first asked for. */

import { el } from "./dom.js";
import { called, strength } from "./hits.js";

document.head.append(el("link", { rel: "stylesheet", href: "why.css" }));

let made = 0;

/** Show or hide the explanation of a hit. `explain` returns a promise of the explanations of all hits, by id. */
export async function toggle(item, explain) {
  const button = item.querySelector(".why");
  const panel = item.querySelector(".reasons");
  if (panel) {
    panel.hidden = !panel.hidden;
    button.setAttribute("aria-expanded", String(!panel.hidden));
    return;
  }
  if (button.getAttribute("aria-busy") === "true") return;
  button.setAttribute("aria-busy", "true");
  try {
    const found = (await explain()).get(item.hit.id);
    item.append(reasons(item.hit, found));
    button.setAttribute("aria-expanded", "true");
    button.setAttribute("aria-controls", item.lastElementChild.id);
  } finally {
    button.removeAttribute("aria-busy");
  }
}

function reasons(hit, found) {
  const panel = el("div", { class: "reasons", id: `reasons-${++made}`, role: "group", "aria-label": `Why ${called(hit)} was found` });
  if (!found) panel.append(el("p", {}, "The collection has changed, and this document is no longer among the hits."));
  else {
    if (found.same_id) panel.append(el("p", {}, "The query is the id of this document, so it comes first."));
    panel.append(
      el(
        "dl",
        {},
        ...row("By meaning", ...side(found.meaning, found.meaning_rank, "cosine", found.cosine?.toFixed(3))),
        ...row("By words", ...side(found.words, found.words_rank, "BM25", found.bm25?.toFixed(2))),
        ...(found.words ? row("Words found", ...words(found.matched)) : []),
        ...row("Weight", `meaning ${percent(found.weight)}, words ${percent(1 - found.weight)}`),
      ),
    );
  }
  return panel;
}

const row = (name, ...children) => [el("dt", {}, name), el("dd", {}, ...children)];
const percent = (share) => `${Math.round(100 * share)} %`;

/** What one side of the search found. */
function side(found, rank, measure, value) {
  if (found === null) return ["not searched"];
  if (measure === "BM25" && found === 0) return ["no word of the query"];
  const place = rank === null ? "not among the best" : `rank ${rank}`;
  return [
    el("span", { class: "strength" }, ...strength(found, "strength "), " of 100"),
    el("span", { class: "place" }, place),
    el("span", { class: "soft" }, `${measure} ${value}`),
  ];
}

/** The words of the query that the document contains. */
const words = (matched) => (matched.length ? matched.map((word) => el("bdi", { class: "word" }, word)) : ["none in the beginning of the text"]);
