/** Filters: their syntax, the chips of active filters, and the panel to choose from. */

import { ask, isAbort } from "./api.js";
import { INEXACT, byId, count, debounced, el, isExact, valueText } from "./dom.js";
import { rangeFilter } from "./ranges.js";
import { go, state } from "./state.js";

const BARE_FIELD = /^[\p{L}\p{N}_.-]+$/u;
const BARE_TEXT = /^\p{L}[\p{L}\p{N}_ -]*$/u;
const A_WORD_OF_ITS_OWN = /^(true|false|null)$/i;
const LITERAL = /^\s*(?:'((?:[^']|'')*)'|([^,()'"=<>]+))\s*/u;

const FIRST = 8; // values shown of a field with so many that one searches within them

const quoted = (text) => `'${text.replaceAll("\\", "\\\\").replaceAll("'", "''")}'`;
const field = (name) => (BARE_FIELD.test(name) ? name : quoted(name));

function literal(value) {
  if (typeof value !== "string") return String(value);
  return BARE_TEXT.test(value) && value.trim() === value && !A_WORD_OF_ITS_OWN.test(value) ? value : quoted(value);
}

/** Return the filter for a field with one of some values. */
export function filterOf(name, values) {
  const written = values.map(literal);
  return written.length === 1 ? `${field(name)} = ${written[0]}` : `${field(name)} in (${written.join(", ")})`;
}

/** Return the values of a filter that this page made for the field; null for any other filter. */
function valuesIn(filter, name) {
  const rest = filter.startsWith(field(name)) ? filter.slice(field(name).length).trimStart() : "";
  const list = rest.startsWith("= ") ? rest.slice(2) : /^in \(.*\)$/s.test(rest) ? rest.slice(4, -1) : null;
  if (list === null) return null;
  const values = [];
  for (let left = list; ; left = left.slice(1)) {
    const next = LITERAL.exec(left);
    if (!next) return null;
    values.push(next[2]?.trim() ?? `'${next[1]}'`);
    left = left.slice(next[0].length);
    if (!left) return rest.startsWith("= ") && values.length > 1 ? null : values;
    if (left[0] !== ",") return null;
  }
}

export const hasValue = (name, value) =>
  state().where.some((filter) => valuesIn(filter, name)?.includes(literal(value)));

/** Add a value to the filter of a field, or remove it. */
export function toggle(name, value) {
  const { where } = state();
  const own = where.findIndex((filter) => valuesIn(filter, name) !== null);
  if (own < 0) return go({ where: [...where, filterOf(name, [value])] });
  const written = valuesIn(where[own], name);
  const wanted = literal(value);
  const left = written.includes(wanted) ? written.filter((one) => one !== wanted) : [...written, wanted];
  const changed = left.length > 1 ? [`${field(name)} in (${left.join(", ")})`] : left.map((one) => `${field(name)} = ${one}`);
  go({ where: [...where.slice(0, own), ...changed, ...where.slice(own + 1)] });
}

const ORDERED = /^\s*(>=|<=|<)\s*(?:'([^']*)'|([^\s'"]+))\s*$/;

/** Split a filter by a range, as this page writes it, into its operator and its value; null for any other filter. */
function ordering(filter, name) {
  const start = field(name);
  const found = filter.startsWith(start) ? ORDERED.exec(filter.slice(start.length)) : null;
  return found && { operator: found[1], value: found[2] ?? found[3] };
}

/** The least and the greatest value that the filters allow for a field; null where there is no limit. */
export function bounds(name) {
  const found = state().where.map((filter) => ordering(filter, name)).filter(Boolean);
  const of = (operators) => found.find(({ operator }) => operators.includes(operator)) ?? null;
  const high = of(["<=", "<"]);
  return [of([">="])?.value ?? null, high?.operator === "<" ? dayFrom(high.value, -1) : (high?.value ?? null)];
}

/** Replace the limits of a field. `timed`: its dates have times, so the last day ends where the next one begins. */
export function setBounds(name, [low, high], timed) {
  const where = state().where.filter((filter) => !ordering(filter, name));
  if (low !== null) where.push(`${field(name)} >= ${literal(low)}`);
  if (high !== null) where.push(timed ? `${field(name)} < ${literal(dayFrom(high, 1))}` : `${field(name)} <= ${literal(high)}`);
  go({ where });
}

function dayFrom(date, days) {
  const moved = new Date(Date.parse(date) + days * 86_400_000);
  return Number.isNaN(moved.getTime()) ? date : moved.toISOString().slice(0, 10);
}

const remove = (filter) => go({ where: state().where.filter((one) => one !== filter) });

/** Show the active filters; `bad` tells which of them the server refused. */
export function showActive(bad = () => false) {
  const { where } = state();
  const chips = where.map((filter, number) =>
    el(
      "span",
      { class: bad(filter, number) ? "chip on bad" : "chip on" },
      el("button", { type: "button", title: "Change this filter", onclick: () => edit(filter) }, el("bdi", {}, filter)),
      el("button", { type: "button", class: "close", "aria-label": `Remove the filter ${filter}`, onclick: () => remove(filter) }, "✕"),
    ),
  );
  byId("active").replaceChildren(...chips);
  byId("active").hidden = !chips.length;
}

function edit(filter) {
  open(true);
  const input = byId("filter-text");
  if (!input) return;
  input.value = filter;
  input.dataset.replaces = filter;
  input.focus();
}

let shown = ""; // the state that the panel shows
let known = ""; // the last known generation of the collection
let asking = null;

/** Open or close the panel. */
export function open(wanted = byId("filter-panel").hidden) {
  byId("filter-panel").hidden = !wanted;
  byId("filter-button").setAttribute("aria-expanded", String(wanted));
  if (wanted) showPanel();
}

/** Show the panel for the current state; `generation` changes with the collection's contents. */
export async function showPanel(generation = known) {
  known = generation;
  const panel = byId("filter-panel");
  if (panel.hidden) return;
  const { collection } = state();
  if (shown !== `${collection} ${generation}` || !panel.childElementCount) {
    asking?.abort();
    asking = new AbortController();
    if (!panel.childElementCount) panel.append(own(null));
    try {
      const { fields } = await ask("v1/fields", { query: { collection }, signal: asking.signal });
      const typed = byId("filter-text")?.value ?? "";
      const focused = document.activeElement?.id === "filter-text";
      panel.replaceChildren(own(fields), ...fields.map(group));
      byId("filter-text").value = typed;
      if (focused) byId("filter-text").focus();
      shown = `${collection} ${generation}`;
    } catch (error) {
      if (!isAbort(error)) panel.append(el("p", { class: "soft" }, error.message));
      return;
    }
  }
  showPressed(panel);
}

/** A form to type a filter. `known` is null while the fields are loaded. */
function own(known) {
  const fields = known ?? [];
  const numeric = fields.find(({ values }) => values.length && values.every(({ value }) => typeof value === "number"));
  const example = numeric
    ? `${field(numeric.name)} >= ${numeric.values[0].value}`
    : fields.length && fields[0].values.length
      ? `${field(fields[0].name)} != ${literal(fields[0].values[0].value)}`
      : "year >= 2020";
  const input = el("input", { id: "filter-text", type: "text", placeholder: example, spellcheck: "false", autocapitalize: "off" });
  const submit = (event) => {
    event.preventDefault();
    const wanted = input.value.trim();
    if (!wanted) return;
    const where = state().where.filter((filter) => filter !== input.dataset.replaces && filter !== wanted);
    input.value = "";
    delete input.dataset.replaces;
    go({ where: [...where, wanted] });
  };
  return el(
    "form",
    { class: "own", onsubmit: submit },
    el("label", { for: "filter-text" }, "Filter"),
    input,
    el("button", { type: "submit" }, "Add"),
    known && !fields.length && el("span", { class: "soft" }, "The documents have no metadata."),
  );
}

/** Show what the filters select now. */
function showPressed(panel) {
  for (const button of panel.querySelectorAll("button.chip")) button.setAttribute("aria-pressed", String(button.isOn()));
  for (const range of panel.querySelectorAll(".range")) range.update();
}

function group({ name, documents, values, more, range }, number) {
  const first = more ? values.slice(0, FIRST) : values;
  const chips = el("div", { class: "chips" }, ...valueChips(name, first), more && !range && el("span", { class: "soft" }, "… and others"));
  return el(
    "fieldset",
    {},
    el("legend", {}, el("bdi", {}, name), el("span", { class: "soft" }, ` ${count(documents, "document")}`)),
    range ? rangeFilter(name, range, number) : [more && valueSearch(name, chips, number), chips],
  );
}

function valueChips(name, values) {
  return values.map(({ value, count: many }) => {
    const text = value === "" ? "(empty)" : valueText(value);
    const having = el("span", { class: "many" }, many.toLocaleString("en"));
    if (!isExact(value)) return el("span", { class: "chip plain", title: INEXACT }, el("bdi", {}, text), having);
    const chip = el(
      "button",
      { type: "button", class: "chip", title: text.length > 40 && text, onclick: () => toggle(name, value) },
      el("bdi", {}, text.length > 40 ? `${text.slice(0, 39)}…` : text),
      having,
    );
    chip.isOn = () => hasValue(name, value);
    return chip;
  });
}

/** A box that searches within the values of a field, and shows what it finds as chips. */
function valueSearch(name, chips, number) {
  const first = [...chips.childNodes];
  let asking = null;
  const search = debounced(async () => {
    asking?.abort();
    const contains = input.value.trim();
    if (!contains) return chips.replaceChildren(...first);
    const { signal } = (asking = new AbortController());
    try {
      const found = await ask("v1/fields/values", { query: { collection: state().collection, field: name, contains }, signal });
      const none = !found.values.length && el("span", { class: "soft" }, "No value contains this.");
      chips.replaceChildren(...valueChips(name, found.values), ...[none, found.more && el("span", { class: "soft" }, "… and others")].filter(Boolean));
    } catch (error) {
      if (!isAbort(error)) chips.replaceChildren(el("span", { class: "soft" }, error.message));
    }
    showPressed(chips);
  }, 150);
  const input = el("input", { type: "search", id: `values-${number}`, class: "values", placeholder: "Search the values", "aria-label": `Search the values of ${name}`, oninput: search });
  return input;
}
