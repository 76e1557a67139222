/** The state of the page, kept in the address, so that links can be shared and the back button works. */

export const MODES = ["hybrid", "dense", "lexical"];
export const VIEWS = ["search", "similar", "compare", "space", "card"];

const DEFAULTS = {
  view: "search",
  q: "",
  mode: "hybrid",
  k: 10,
  where: [],
  collection: "",
  id: "", // the document whose similar ones are shown
  doc: "", // the document that is open
  part: "", // the part of it that is marked: start-end, in code points
  colour: "", // the field that colours the map
  at: "", // the view of the map: x, y, zoom
};

const listeners = [];
let current = read();

export const state = () => current;

/** Register a listener, called with the new state, the old one, and whether the user went back or forward. */
export const onChange = (listener) => listeners.push(listener);

function read() {
  const given = new URLSearchParams(location.search);
  const text = (name) => given.get(name) ?? DEFAULTS[name];
  const k = Number(text("k"));
  return {
    ...Object.fromEntries(Object.keys(DEFAULTS).map((name) => [name, text(name)])),
    view: VIEWS.includes(text("view")) ? text("view") : DEFAULTS.view,
    mode: MODES.includes(text("mode")) ? text("mode") : DEFAULTS.mode,
    k: Number.isSafeInteger(k) ? k : DEFAULTS.k,
    where: given.getAll("where").filter((filter) => filter.trim()),
  };
}

/** The address of the current state with some changes. */
export function link(patch) {
  const wanted = { ...current, ...patch };
  if (wanted.doc !== current.doc && patch.part === undefined) wanted.part = "";
  if (!wanted.doc) wanted.part = "";
  if (wanted.view !== "similar") wanted.id = "";
  if (wanted.view !== "space") wanted.colour = wanted.at = "";
  const parameters = new URLSearchParams();
  for (const [name, standard] of Object.entries(DEFAULTS)) {
    if (name === "where") for (const filter of wanted.where) parameters.append(name, filter);
    else if (wanted[name] !== standard) parameters.set(name, wanted[name]);
  }
  const query = parameters.toString();
  return query ? `?${query}` : location.pathname;
}

/** Change the state; with `replace`, without a new entry of the history. */
export function go(patch, { replace = false } = {}) {
  const address = link(patch);
  if (address === (location.search || location.pathname)) return;
  // Marks entries that opened a document, so that closing it can go back.
  if (replace) history.replaceState(history.state, "", address);
  else history.pushState({ opened: Boolean(patch.doc) }, "", address);
  changed();
}

function changed(backOrForward = false) {
  const before = current;
  current = read();
  for (const listener of listeners) listener(current, before, backOrForward);
}

addEventListener("popstate", () => changed(true));
