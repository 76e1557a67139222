/** Filters of a field by a range: a histogram to drag on, and the two ends to type. */

import { el, svg } from "./dom.js";
import { bounds, setBounds } from "./filters.js";

const [WIDTH, HEIGHT] = [240, 44];
const DAY = 86_400_000;

/** The histogram and the ends of a field; `update()` shows the filters that hold now. */
export function rangeFilter(name, range, number) {
  const { kind, histogram, whole } = range;
  const [least, greatest] = [range.least, range.greatest].map((end) => (kind === "date" ? Date.parse(end) : end));
  const most = Math.max(...histogram);
  const step = WIDTH / histogram.length;
  const edge = (bin) => least + (bin / histogram.length) * (greatest - least);
  const bars = histogram.map((many, bin) => {
    const height = many ? Math.max(2, (HEIGHT * many) / most) : 0;
    return svg("rect", { x: bin * step + 0.5, y: HEIGHT - height, width: step - 1, height });
  });
  const picture = svg("svg", { class: "histogram", viewBox: `0 0 ${WIDTH} ${HEIGHT}`, preserveAspectRatio: "none", "aria-hidden": "true" }, ...bars);
  const end = (label, value, side) => {
    const limits = kind === "date" ? { type: "date" } : { type: "number", step: whole ? 1 : "any", placeholder: String(value) };
    const input = el("input", { ...limits, id: `range-${number}-${side}`, onchange: apply, min: value === range.greatest ? undefined : range.least, max: range.greatest });
    return [el("label", { for: input.id }, label), input];
  };
  const [from, to] = [end("from", range.least, "from"), end("to", range.greatest, "to")];

  function apply() {
    setBounds(name, [from, to].map(([, input]) => (input.value === "" ? null : written(input.value))), kind === "date" && !whole);
  }
  const written = (text) => (kind === "date" ? text : Number(text));

  /** The value of an end as the user would type it. */
  const typed = (value) => (kind === "date" ? new Date(value).toISOString().slice(0, 10) : whole ? Math.round(value) : Number(value.toPrecision(6)));

  let pressed = null;
  const binAt = (event) => {
    const box = picture.getBoundingClientRect();
    return Math.min(Math.max(Math.floor(((event.clientX - box.left) / box.width) * bars.length), 0), bars.length - 1);
  };
  const light = (first, last) => bars.forEach((bar, bin) => bar.classList.toggle("out", bin < first || bin > last));
  picture.addEventListener("pointerdown", (event) => {
    if (event.button !== 0) return;
    pressed = binAt(event);
    picture.setPointerCapture(event.pointerId);
    light(pressed, pressed);
  });
  picture.addEventListener("pointermove", (event) => {
    if (pressed !== null) light(...ordered(pressed, binAt(event)));
  });
  picture.addEventListener("pointercancel", () => {
    pressed = null;
    update();
  });
  picture.addEventListener("pointerup", (event) => {
    if (pressed === null) return;
    const [first, last] = ordered(pressed, binAt(event));
    pressed = null;
    const low = whole && kind === "number" ? Math.ceil(edge(first)) : edge(first);
    // The last part contains its end; of any other part, the end belongs to the next part.
    const high = last === bars.length - 1 ? greatest : whole ? Math.ceil(edge(last + 1) / unit) * unit - unit : edge(last + 1);
    from[1].value = typed(low);
    to[1].value = typed(Math.max(low, high));
    apply();
  });
  const unit = kind === "date" ? DAY : 1;

  function update() {
    const [low, high] = bounds(name);
    for (const [[, input], value] of [[from, low], [to, high]]) if (document.activeElement !== input) input.value = value ?? "";
    const place = (value, otherwise) => (value === null ? otherwise : kind === "date" ? Date.parse(value) : Number(value));
    const [a, b] = [place(low, -Infinity), place(high, Infinity)];
    bars.forEach((bar, bin) => bar.classList.toggle("out", edge(bin + 1) < a || edge(bin) > b));
  }

  const box = el("div", { class: "range" }, picture, el("div", { class: "ends" }, ...from, ...to));
  return Object.assign(box, { update });
}

const ordered = (a, b) => (a < b ? [a, b] : [b, a]);
