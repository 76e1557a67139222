/** Keyboard shortcuts. */

import { byId } from "./dom.js";
import { open as openFilters } from "./filters.js";
import { fold } from "./hits.js";
import { go, state } from "./state.js";

const DIGITS = { 1: "search", 2: "compare", 3: "space", 4: "card" };

const typing = (element) => element?.matches?.("input:not([type=radio]), select, textarea");
const links = () => [...document.querySelectorAll("section[data-view]:not([hidden]) a.open")];
const current = () => links().indexOf(document.activeElement?.closest(".hit, .compared")?.querySelector("a.open") ?? document.activeElement);

function move(step) {
  const all = links();
  if (!all.length) return false;
  const next = current() + step;
  if (next < 0) byId("query").focus();
  else {
    const target = all[Math.min(next, all.length - 1)];
    target.focus();
    target.closest("li")?.scrollIntoView({ block: "nearest" });
  }
  return true;
}

function inBox(event) {
  if (event.key === "ArrowDown" && move(links().length - current() > 0 ? 1 : 0)) event.preventDefault();
  else if (event.key === "Escape" && !event.target.value) event.target.blur();
}

function anywhere(event) {
  const { key } = event;
  const item = document.activeElement?.closest?.("li");
  if (key === "/") byId("query").focus();
  else if (key === "?") byId("help").showModal();
  else if (key === "f") openFilters();
  else if (key === "j" || key === "ArrowDown") return move(1);
  else if (key === "k" || key === "ArrowUp") return current() >= 0 && move(-1);
  else if (key === "s" && item?.hit) go({ view: "similar", id: item.hit.id });
  else if (key === "m" && item?.matches(".hit")) fold(item);
  else if (key === "w" && item?.matches(".hit")) item.querySelector(".why")?.click();
  else if (key in DIGITS) go({ view: DIGITS[key] });
  else if (key === "Escape") {
    if (!byId("filter-panel").hidden) {
      openFilters(false);
      byId("filter-button").focus();
    } else if (state().view === "similar") go({ view: "search" });
    else byId("query").focus();
  } else return false;
  return true;
}

document.addEventListener("keydown", (event) => {
  if (event.defaultPrevented || event.ctrlKey || event.metaKey || event.altKey || event.isComposing) return;
  if (document.querySelector("dialog[open]")) return;
  if (event.target === byId("query")) return inBox(event);
  if (typing(event.target)) {
    if (event.key === "Escape") event.target.blur();
    return;
  }
  if (event.target.type === "radio" && event.key.startsWith("Arrow")) return;
  if (anywhere(event)) event.preventDefault();
});

byId("help-button").addEventListener("click", () => byId("help").showModal());
byId("help").addEventListener("click", (event) => {
  if (event.target === byId("help")) byId("help").close();
});
