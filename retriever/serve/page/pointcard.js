/** The tooltip of a point of the map, which shows its document. */

import { ask } from "./api.js";
import { announce, debounced, el, fill } from "./dom.js";
import { called, documentLink, similarLink } from "./hits.js";

const SHOWN_AFTER = 90; // milliseconds on a point
const REMEMBERED = 2000;
const EXCERPT = 220;

export class PointCard {
  /** `where()` returns the collection and the key of the map. */
  constructor(stage, map, where) {
    this.map = map;
    this.where = where;
    this.point = -1;
    this.known = new Map();
    this.element = el("div", { class: "point-card", hidden: true });
    stage.append(this.element);
    this.load = debounced((point) => this.fill(point), SHOWN_AFTER);
  }

  forget() {
    this.known.clear();
    this.show(-1);
  }

  /** The id, title and passage of a point, requested once. */
  about(point) {
    if (!this.known.has(point)) {
      if (this.known.size >= REMEMBERED) this.known.delete(this.known.keys().next().value);
      const asked = ask(`v1/map/points/${point}`, { query: this.where() });
      asked.catch(() => this.known.delete(point));
      this.known.set(point, asked);
    }
    return this.known.get(point);
  }

  show(point) {
    this.load.cancel();
    this.point = point;
    if (point < 0) this.element.hidden = true;
    else this.load(point);
  }

  async fill(point) {
    const about = await this.about(point).catch(() => null);
    if (!about || point !== this.point) return;
    const { id, title, passage } = about;
    fill(
      this.element,
      el("strong", { dir: "auto" }, called(about)),
      title && title !== id && el("bdi", { class: "id" }, id),
      el("p", { dir: "auto" }, passage.length > EXCERPT ? `${passage.slice(0, EXCERPT).trimEnd()}…` : passage),
      el("div", { class: "then" }, documentLink({ id, title: "Open" }, { class: "" }), similarLink({ id, title })),
    );
    this.element.hidden = false;
    this.move();
    announce(called(about));
  }

  /** Move the tooltip beside its point, within the map. */
  move() {
    if (this.element.hidden || this.point < 0) return;
    const [x, y] = this.map.place(this.point);
    const { offsetWidth: width, offsetHeight: height } = this.element;
    const right = x + 18 + width < this.map.width ? x + 18 : x - 18 - width;
    const left = Math.min(Math.max(right, 8), Math.max(8, this.map.width - width - 8));
    const top = Math.min(Math.max(y - height / 2, 8), Math.max(8, this.map.height - height - 8));
    this.element.style.transform = `translate(${Math.round(left)}px, ${Math.round(top)}px)`;
  }
}
