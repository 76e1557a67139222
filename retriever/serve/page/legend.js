/** The legend of the map, and its list of hits. */

import { el, fill } from "./dom.js";
import { documentLink } from "./hits.js";
import { NONE, along, category, neutral } from "./palette.js";

const MOST = 60;

/** Show the colours as buttons that hide or show their points; for numbers, the scale. */
export function showLegend(list, { kind, codes, clusters, values, least, greatest }, map) {
  if (kind === "number") return fill(list, el("li", { class: "scale" }, ramp(), el("span", {}, number(least)), el("span", {}, number(greatest))));
  const counts = new Uint32Array(256);
  for (const code of codes) counts[code]++;
  const named = clusters ? clusters.map(({ number: code, label }) => [code, label]) : values.map((value, code) => [code, String(value) || "(empty)"]);
  const items = named
    .map(([code, label]) => ({ code, label, many: counts[code], colour: category(code) }))
    .sort((a, b) => b.many - a.many);
  if (counts[NONE]) items.push({ code: NONE, label: clusters ? "in no cluster" : "other values or none", many: counts[NONE], colour: neutral() });
  return fill(list, items.slice(0, MOST).map((item) => entry(item, map)), items.length > MOST && el("li", { class: "soft" }, `and ${items.length - MOST} more`));
}

function entry({ code, label, many, colour }, map) {
  const swatch = el("span", { class: "swatch" });
  swatch.style.background = colour;
  const button = el(
    "button",
    { type: "button", "aria-pressed": String(!map.hiddenCodes.has(code)), title: "Show or hide" },
    swatch,
    el("span", { class: "label", dir: "auto" }, label),
    el("span", { class: "many" }, many.toLocaleString("en")),
  );
  button.addEventListener("click", () => {
    const shown = map.hiddenCodes.delete(code);
    if (!shown) map.hiddenCodes.add(code);
    button.setAttribute("aria-pressed", String(shown));
    map.redraw();
  });
  return el("li", {}, button);
}

function ramp() {
  const bar = el("span", { class: "ramp", "aria-hidden": "true" });
  const stops = [0, 0.25, 0.5, 0.75, 1].map(along);
  bar.style.background = `linear-gradient(to right, ${stops.join(", ")})`;
  return bar;
}

const number = (value) => (Number.isInteger(value) ? String(value) : Number(value).toPrecision(4));

/** Show the hits as links; pointing at one highlights it on the map. */
export function showHits(box, hits, { over, out }) {
  const items = hits.map((hit) => {
    const item = el(
      "li",
      { class: hit.point < 0 ? "off" : "", onpointerenter: () => over(hit), onpointerleave: out, onfocusin: () => over(hit), onfocusout: out },
      el("span", { class: "rank", "aria-hidden": "true" }, String(hit.rank)),
      documentLink(hit),
    );
    item.hit = hit;
    return item;
  });
  return fill(box, hits.length > 0 && el("ol", { "aria-label": "Hits on the map" }, items));
}
