/** The space view: the collection as a map, with the query's hits highlighted. */

import { Problem, ask, fetched, isAbort } from "./api.js";
import { announce, byId, count, debounced, el, fill } from "./dom.js";
import { showHits, showLegend } from "./legend.js";
import { listen } from "./mapinput.js";
import { clearProblem, emptyCollection, showProblem } from "./notices.js";
import { isDark, table } from "./palette.js";
import { PointCard } from "./pointcard.js";
import { drawMarks } from "./mapmarks.js";
import { PointMap } from "./pointmap.js";
import { request } from "./search.js";
import { go, state } from "./state.js";

const ASKED_AGAIN = 1000; // milliseconds, while the map is being made
const TWICE = 2;

const view = byId("view-space");
document.head.append(el("link", { rel: "stylesheet", href: "space.css" }));

const base = el("canvas", { class: "points", "aria-hidden": "true" });
const over = el("canvas", {
  class: "marks",
  tabindex: "0",
  role: "application",
  "aria-label": "Map of the collection: arrow keys move, plus and minus zoom, Enter opens the document at the cross",
  "aria-describedby": "map-said",
});
const zoomButton = (label, text, run) => el("button", { type: "button", class: "icon", "aria-label": label, title: label, onclick: run }, text);
const stage = el(
  "div",
  { class: "stage" },
  base,
  over,
  el(
    "div",
    { class: "zooms", role: "group", "aria-label": "Zoom" },
    zoomButton("Zoom in", "+", () => zoom(1.6)),
    zoomButton("Zoom out", "−", () => zoom(1 / 1.6)),
    zoomButton("Show all", "⤢", () => moved(map.look(32768, 32768, 1))),
  ),
);
const colourBy = el("select", { id: "colour", onchange: () => go({ colour: colourBy.value }, { replace: true }) });
const colourNote = el("p", { class: "note", role: "alert", hidden: true });
const legend = el("ul", { class: "legend", "aria-label": "Colours" });
const hitsBox = el("div", { class: "map-hits" });
const said = el("p", { id: "map-said", class: "soft" });
const panel = el(
  "div",
  { class: "side" },
  said,
  hitsBox,
  el("div", { class: "colours" }, el("label", { for: "colour" }, "Colour by"), colourBy),
  colourNote,
  legend,
);
const making = el("div", { class: "making", role: "status", hidden: true });
const whole = el("div", { class: "space", hidden: true }, stage, panel);
view.append(making, whole);

/** What is highlighted: the hits, the point under the pointer, and the cross for keyboard users. */
const marks = { hits: [], hovered: -1, cross: false, labels: [] };
const map = new PointMap(base, over, (context) => drawMarks(context, map, marks));
const card = new PointCard(stage, map, () => ({ collection: state().collection, key: loaded?.key }));

let loaded = null; // the map: key, clusters, fields, points
let loading = null;
let searching = null;
let shownColour = null;
let shownSearch = "";

export async function show({ collection }) {
  if (loading?.collection === collection) return;
  if (loaded?.collection !== collection) {
    hide();
    await load(collection);
  }
  const now = state(); // which may have changed meanwhile
  if (now.view !== "space" || loaded?.collection !== now.collection) return;
  if (shownColour !== now.colour) showColours(now.colour);
  showSearch(now);
}

export function hide() {
  loading?.abort();
  searching?.abort();
  loading = searching = null;
  byId("busy").classList.remove("on");
  shownSearch = "";
  making.hidden = true;
}

async function load(collection) {
  loaded = null;
  whole.hidden = true;
  loading = Object.assign(new AbortController(), { collection });
  const { signal } = loading;
  try {
    const about = await whenMade(collection, signal);
    if (!about.documents) {
      fill(making, emptyCollection()).hidden = false;
      announce("The collection is empty.");
      return clearProblem();
    }
    const query = { collection, key: about.key };
    const bytes = await (await fetched("v1/map/points", { query, signal })).arrayBuffer();
    const n = about.documents;
    if (bytes.byteLength !== 5 * n) throw new Problem(0, { detail: `The map has ${bytes.byteLength} bytes instead of ${5 * n} for ${count(n, "point")}.` });
    loaded = { ...about, collection, clusterCodes: new Uint8Array(bytes, 4 * n, n) };
    shownColour = null;
    shownSearch = "";
    whole.hidden = false;
    card.forget();
    map.setPoints(new Uint16Array(bytes, 0, n), new Uint16Array(bytes, 2 * n, n));
    fit();
    const options = about.fields.map((name) => el("option", { value: name }, name));
    fill(colourBy, el("option", { value: "" }, "cluster"), options);
    const [x, y, zoomed] = state().at.split(",").map(Number);
    if (state().at && [x, y, zoomed].every(Number.isFinite)) map.look(x, y, zoomed);
    else map.look(32768, 32768, 1);
    announce(`A map of ${count(n, "document")} in ${count(about.clusters.length, "cluster")}. A list of the clusters follows.`);
    clearProblem();
  } catch (error) {
    if (!isAbort(error)) showProblem(error);
  } finally {
    if (loading?.signal === signal) loading = null;
  }
}

/** Request the map until it is ready, and show the progress. */
async function whenMade(collection, signal) {
  const bar = el("progress", { max: "1", "aria-label": "The map is being made" });
  const what = el("p", { class: "soft" });
  for (;;) {
    const about = await ask("v1/map", { query: { collection }, signal });
    if (about.state === "ready") {
      making.hidden = true;
      return about;
    }
    if (making.hidden) fill(making, el("p", { class: "lead" }, "Making the map of this collection. This is done only once."), bar, what);
    making.hidden = false;
    bar.value = about.done;
    what.textContent = `${about.what}: ${Math.round(100 * about.done)} %`;
    await new Promise((resolve) => setTimeout(resolve, ASKED_AGAIN));
    signal.throwIfAborted();
  }
}

async function showColours(field) {
  shownColour = field;
  colourNote.hidden = true;
  const { collection, key, clusters, clusterCodes } = loaded;
  const late = () => shownColour !== field || loaded?.key !== key;
  let scheme = { kind: "cluster", codes: clusterCodes, clusters };
  if (field) {
    try {
      const given = await ask("v1/map/colours", { query: { collection, key, field } });
      scheme = { ...given, codes: Uint8Array.from(atob(given.codes), (one) => one.charCodeAt(0)) };
    } catch (error) {
      return late() || colourless(error);
    }
    if (late()) return;
  }
  colourBy.value = field;
  map.codes = scheme.codes;
  map.hiddenCodes.clear();
  marks.scheme = scheme;
  const middles = field ? [] : map.middles();
  marks.labels = field ? [] : clusters.filter(({ number }) => middles[number]).map(({ number, label, documents }) => ({ ...middles[number], number, label, documents }));
  paint();
}

/** Report a field that cannot be used for colours, beside the map, where a search does not clear the message. */
function colourless(error) {
  showColours("");
  fill(colourNote, `${error.message} The map is coloured by cluster.`);
  colourNote.hidden = false;
  go({ colour: "" }, { replace: true });
}

/** Draw in the colours of the system, which may switch between light and dark. */
function paint() {
  if (!marks.scheme) return;
  const paper = getComputedStyle(document.documentElement).getPropertyValue("--sheet").trim();
  map.paper = [1, 3, 5].map((at) => parseInt(paper.slice(at, at + 2), 16));
  map.colours = table(marks.scheme.kind);
  marks.dark = isDark();
  showLegend(legend, marks.scheme, map);
  map.redraw();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", paint);

async function showSearch(now) {
  const body = request(now);
  const wanted = JSON.stringify(body);
  if (wanted === shownSearch) return;
  shownSearch = wanted;
  searching?.abort();
  const { signal } = (searching = new AbortController());
  if (!now.q.trim()) return light([], "");
  byId("busy").classList.add("on");
  try {
    const { hits } = await ask("v1/search", { body, signal });
    const { numbers } = await locate(hits.map((hit) => hit.id), signal);
    clearProblem();
    light(hits.map((hit, i) => ({ ...hit, point: numbers[i] ?? -1 })), now.q);
  } catch (error) {
    if (isAbort(error)) return;
    shownSearch = "";
    showProblem(error);
  } finally {
    if (!signal.aborted) byId("busy").classList.remove("on");
  }
}

/** Locate documents on the map; if the server no longer has this map, load the new one, once. */
async function locate(ids, signal, times = TWICE) {
  const { collection, key } = loaded;
  try {
    return await ask("v1/map/locate", { body: { ...(collection && { collection }), key, ids }, signal });
  } catch (error) {
    if (!(error instanceof Problem) || ![404, 409, 410].includes(error.status) || times <= 1) throw error;
    await load(collection);
    if (!loaded) throw error;
    showColours(state().colour);
    return locate(ids, signal, times - 1);
  }
}

/** How faithful the map is, if the server has measured it. */
function kept() {
  const share = loaded?.kept?.within_50;
  return typeof share === "number" ? `: of a document's ten nearest neighbours, ${Math.round(100 * share)} % are among the fifty nearest points` : "";
}

function light(hits, query) {
  marks.hits = hits;
  map.dimmed = hits.length > 0;
  const missing = hits.filter((hit) => hit.point < 0).length;
  said.textContent = query
    ? `The diamond is the query, drawn between its hits${missing ? `; ${count(missing, "hit is", "hits are")} not on this map` : ""}.`
    : `Near points are similar documents${kept()}. Large distances mean little.`;
  showHits(hitsBox, hits, { over: (hit) => hover(hit.point, true), out: () => hover(-1) });
  if (query) announce(`${count(hits.length, "hit")} for ${query} on the map.`);
  map.redraw();
}

function hover(point, bringIntoView = false) {
  if (point === marks.hovered) return;
  marks.hovered = point;
  if (point >= 0 && bringIntoView) {
    const [x, y] = map.place(point);
    if (x < 30 || y < 30 || x > map.width - 30 || y > map.height - 30) map.look(map.x[point], map.y[point]);
  }
  card.show(point);
  over.classList.toggle("pointing", point >= 0);
  map.redraw();
}

/** For keyboard users, show the document at the cross in the centre. */
const atCross = debounced(() => marks.cross && hover(map.nearest(map.width / 2, map.height / 2, 60)), 80);

const keep = debounced(() => {
  if (state().view !== "space" || !loaded) return;
  const { x, y } = map.centre;
  const at = map.zoom === 1 ? "" : `${Math.round(x)},${Math.round(y)},${Number(map.zoom.toFixed(3))}`;
  go({ at }, { replace: true });
}, 300);

function moved() {
  card.move();
  keep();
}

function zoom(factor) {
  map.zoomAt(factor);
  moved();
}

const open = (point) => card.about(point).then(({ id }) => go({ doc: id }), () => {});

listen(over, map, {
  hover: (point) => {
    marks.cross = false;
    hover(point);
  },
  pick: (point, touched) => {
    marks.cross = false;
    if (touched) hover(point);
    else if (point >= 0) open(point);
  },
  moved,
  key: () => {
    marks.cross = true;
    atCross();
  },
  open: () => marks.hovered >= 0 && open(marks.hovered),
});
over.addEventListener("focus", () => {
  if (!over.matches(":focus-visible")) return;
  marks.cross = true;
  atCross();
  map.redraw();
});
over.addEventListener("blur", () => {
  if (!marks.cross) return;
  marks.cross = false;
  hover(-1);
  map.redraw();
});

function fit() {
  const { width, height } = stage.getBoundingClientRect();
  if (width && (width !== map.width || height !== map.height)) map.resize(width, height);
}
new ResizeObserver(fit).observe(stage);
