/** A complete document in a dialog, with the passage that was found marked. */

import { isAbort, storedDocument } from "./api.js";
import { byId, el, fill, marked, unitsOf, valueText } from "./dom.js";
import { placeOf, similarLink, sourceOf } from "./hits.js";
import { isMarkdown, isWeb, rendered, webLink } from "./markdown.js";
import { go, link, state } from "./state.js";

const dialog = byId("document");
let shown = null;
let asking = null;
let opener = null;

dialog.addEventListener("cancel", (event) => {
  event.preventDefault();
  close();
});
dialog.addEventListener("click", (event) => {
  if (event.target === dialog) close();
});

/** Go back to where the document was opened; if the page was loaded with it, go to the view behind it. */
function close() {
  if (history.state?.opened) history.back();
  else go({ doc: "" }, { replace: true });
}

export async function show({ doc, collection, part }) {
  if (!doc) {
    asking?.abort();
    if (dialog.open) dialog.close();
    if (shown && opener?.isConnected) opener.focus();
    shown = opener = null;
    return;
  }
  if (shown?.id === doc && shown.asked === collection && shown.part === part) return;
  shown = { id: doc, asked: collection, part };
  asking?.abort();
  const { signal } = (asking = new AbortController());
  if (!dialog.open) opener = document.activeElement;
  const body = el("div", { class: "text", tabindex: "0", role: "region", "aria-label": "Text of the document" }, el("p", { class: "soft" }, "…"));
  put(doc, "", [], body);
  if (!dialog.open) dialog.showModal();
  try {
    const start = /^(\d{1,9})-\d/.exec(part)?.[1];
    const { title, text, metadata, place } = await storedDocument(doc, collection, signal, start);
    Object.assign(shown, { text, metadata });
    put(doc, title, Object.entries(metadata ?? {}), body, start ? placeOf({ id: doc, place }) : "", sourceOf(metadata));
    mark();
  } catch (error) {
    if (isAbort(error)) return;
    body.replaceChildren(el("p", { class: "problem-text", role: "alert" }, error.message));
  }
}

function put(id, title, metadata, body, place = "", source = "") {
  const copy = async (event) => {
    const button = event.currentTarget;
    await navigator.clipboard?.writeText(new URL(link({}), location.href).href);
    button.textContent = "Copied";
  };
  fill(
    dialog,
    el(
      "div",
      { class: "head" },
      el("div", {}, el("h2", { id: "document-title", dir: "auto" }, title || id), unfold(), title && !place.startsWith(id) && el("bdi", { class: "id" }, id), place && el("bdi", { class: "id place" }, place)),
      el("button", { type: "button", class: "icon", "aria-label": "Close the document", onclick: close }, "✕"),
    ),
    metadata.length > 0 &&
      el("dl", { class: "metadata" }, ...metadata.map(([name, value]) => el("div", {}, el("dt", {}, el("bdi", {}, name)), el("dd", { dir: "auto" }, written(value))))),
    body,
    el(
      "div",
      { class: "actions" },
      similarLink({ id, title }, "Similar documents"),
      source && webLink(source, "Open the source"),
      navigator.clipboard && el("button", { type: "button", class: "quiet", onclick: copy }, "Copy link"),
    ),
  );
  for (const one of dialog.querySelectorAll(".actions a")) one.classList.add("button");
  foldTitle();
}

function unfold() {
  const whole = () => {
    byId("document-title").classList.add("whole");
    button.remove();
  };
  const button = el("button", { type: "button", class: "quiet unfold", hidden: true, onclick: whole }, "Full title");
  return button;
}

/** Show a button if the title has more lines than the dialog shows. */
function foldTitle() {
  const button = dialog.querySelector(".unfold");
  const heading = byId("document-title");
  if (button) button.hidden = heading.scrollHeight <= heading.clientHeight + 1;
}
new ResizeObserver(() => requestAnimationFrame(foldTitle)).observe(dialog);

const written = (value) => (isWeb(value) ? webLink(value, value) : typeof value === "string" ? value : Array.isArray(value) ? value.map(written).join(", ") : typeof value === "number" ? valueText(value) : JSON.stringify(value));

/** Show the text, with the part that the address names marked and scrolled into view. */
function mark() {
  const body = dialog.querySelector(".text");
  if (!body || shown?.text === undefined) return;
  const { text, metadata, part } = shown;
  const [, from, to] = (/^(\d{1,9})-(\d{1,9})$/.exec(part) ?? []).map(Number);
  const start = to > from ? unitsOf(text, from) : null;
  const end = start === null ? 0 : unitsOf(text, to - from, start);
  const none = start === null || end - start >= text.trim().length;
  const markdown = isMarkdown(metadata);
  const nodes = (markdown ? rendered : marked)(text, none ? null : start, end);
  body.replaceChildren(markdown ? el("div", { class: "markdown", dir: "auto" }, ...nodes) : el("p", { dir: "auto" }, ...nodes));
  body.querySelector("mark")?.scrollIntoView({ block: "start" });
}
