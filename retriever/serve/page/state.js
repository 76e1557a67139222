/** What the page shows, all of it in the address: a search can be sent to a colleague, and back goes back. */

export const MODES = ["dense", "lexical", "hybrid"];
export const VIEWS = ["search", "similar", "compare", "space", "card"];

const DEFAULTS = {
  view: "search",
  q: "",
  mode: "dense",
  k: 10,
  where: [],
  collection: "",
  id: "", // whose similar documents are shown
  doc: "", // the document that is open
  colour: "", // the field that colours the map
  at: "", // where on the map one is: x, y, zoom
};

const listeners = [];
let current = read();

export const state = () => current;

/** Call when the state changes, with the new one, the one before, and whether that was by going back or forward. */
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

/** The address of the present state with some of it changed. */
export function link(patch) {
  const wanted = { ...current, ...patch };
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

/** Change the state; `replace` leaves no entry to come back to. */
export function go(patch, { replace = false } = {}) {
  const address = link(patch);
  if (address === (location.search || location.pathname)) return;
  // An entry that opened a document knows that back closes it.
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
