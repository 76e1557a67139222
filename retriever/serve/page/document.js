/** A complete document in a dialog, with the passage that was found marked. */

import { isAbort, storedDocument } from "./api.js";
import { byId, el, fill, marked, unitsOf, valueText } from "./dom.js";
import { similarLink } from "./hits.js";
import { go, link, state } from "./state.js";

const dialog = byId("document");
let shown = null;
let asking = null;
let found = null; // the hit that was opened, with its passage
let opener = null;

document.addEventListener("opened", ({ detail }) => {
  found = detail;
  mark();
});
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

export async function show({ doc, collection }) {
  if (!doc) {
    asking?.abort();
    if (dialog.open) dialog.close();
    if (shown && opener?.isConnected) opener.focus();
    shown = found = opener = null;
    return;
  }
  if (shown?.id === doc && shown.asked === collection) return;
  shown = { id: doc, asked: collection };
  asking?.abort();
  const { signal } = (asking = new AbortController());
  if (!dialog.open) opener = document.activeElement;
  const body = el("div", { class: "text", tabindex: "0", role: "region", "aria-label": "Text of the document" }, el("p", { class: "soft" }, "…"));
  put(doc, "", [], body);
  if (!dialog.open) dialog.showModal();
  try {
    const { title, text, metadata } = await storedDocument(doc, collection, signal);
    shown.text = text;
    put(doc, title, Object.entries(metadata ?? {}), body);
    mark();
  } catch (error) {
    if (isAbort(error)) return;
    body.replaceChildren(el("p", { class: "problem-text", role: "alert" }, error.message));
  }
}

function put(id, title, metadata, body) {
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
      el("div", {}, el("h2", { id: "document-title", dir: "auto" }, title || id), unfold(), title && el("bdi", { class: "id" }, id)),
      el("button", { type: "button", class: "icon", "aria-label": "Close the document", onclick: close }, "✕"),
    ),
    metadata.length > 0 &&
      el("dl", { class: "metadata" }, ...metadata.map(([name, value]) => el("div", {}, el("dt", {}, el("bdi", {}, name)), el("dd", { dir: "auto" }, written(value))))),
    body,
    el(
      "div",
      { class: "actions" },
      similarLink({ id, title }, "Similar documents"),
      navigator.clipboard && el("button", { type: "button", class: "quiet", onclick: copy }, "Copy link"),
    ),
  );
  dialog.querySelector(".similar").classList.add("button");
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

const written = (value) => (typeof value === "string" ? value : Array.isArray(value) ? value.map(written).join(", ") : typeof value === "number" ? valueText(value) : JSON.stringify(value));

/** Show the text, with the passage of the hit marked, if known, and scrolled into view. */
function mark() {
  const body = dialog.querySelector(".text");
  if (!body || shown?.text === undefined) return;
  const { text } = shown;
  const known = found && found.id === shown.id && state().doc === found.id && found.end !== undefined;
  const start = known ? unitsOf(text, found.start) : null;
  const end = known ? unitsOf(text, found.end - found.start, start) : 0;
  const whole = known && end - start >= text.trim().length;
  body.replaceChildren(el("p", { dir: "auto" }, ...(whole ? [text] : marked(text, start, end))));
  body.querySelector("mark")?.scrollIntoView({ block: "center" });
}
