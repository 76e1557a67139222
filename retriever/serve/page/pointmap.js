/** Draws points on a canvas, 100,000 in one frame, and finds the point at a position. */

import { NONE } from "./palette.js";

const SIDE = 65536; // coordinates have 16 bits
const CELLS = 256; // per side of the grid that finds points
const NEAREST = 1;
const FARTHEST = 400; // the maximum zoom
const BADGE = 11; // pixels around the number of a hit
const SHARPEST = 2; // the most device pixels drawn per CSS pixel; more would not be visible

export class PointMap {
  /** `drawOver(context, map)` draws on top, in CSS pixels. */
  constructor(base, over, drawOver) {
    this.base = base;
    this.over = over;
    this.drawOver = drawOver;
    this.x = this.y = new Uint16Array(0);
    this.codes = new Uint8Array(0);
    this.hiddenCodes = new Set();
    this.colours = new Uint8Array(768);
    this.paper = [255, 255, 255];
    this.dimmed = false;
    this.centre = { x: SIDE / 2, y: SIDE / 2 };
    this.zoom = 1;
    this.width = this.height = 0;
    this.frame = 0;
    this.badges = []; // the numbers of hits: their places and points, best first
  }

  setPoints(x, y) {
    this.x = x;
    this.y = y;
    this.buildGrid();
    this.redraw();
  }

  /** Sort the points into cells, by counting sort. */
  buildGrid() {
    const n = this.x.length;
    const starts = new Uint32Array(CELLS * CELLS + 1);
    const cellOf = new Uint16Array(n);
    for (let i = 0; i < n; i++) {
      cellOf[i] = (this.y[i] >> 8) * CELLS + (this.x[i] >> 8);
      starts[cellOf[i] + 1]++;
    }
    for (let cell = 0; cell < CELLS * CELLS; cell++) starts[cell + 1] += starts[cell];
    const next = starts.slice();
    this.members = new Uint32Array(n);
    for (let i = 0; i < n; i++) this.members[next[cellOf[i]]++] = i;
    this.starts = starts;
  }

  resize(width, height) {
    this.width = width;
    this.height = height;
    this.sharpness = Math.min(devicePixelRatio || 1, SHARPEST);
    for (const canvas of [this.base, this.over]) {
      canvas.width = Math.max(1, Math.round(width * this.sharpness));
      canvas.height = Math.max(1, Math.round(height * this.sharpness));
    }
    this.image = this.base.getContext("2d", { alpha: false }).createImageData(this.base.width, this.base.height);
    this.redraw();
  }

  /** CSS pixels per unit. */
  get scale() {
    return (this.zoom * 0.94 * Math.min(this.width, this.height)) / SIDE;
  }

  /** The position where a point is drawn. */
  place(i) {
    return this.placeOf(this.x[i], this.y[i]);
  }

  placeOf(x, y) {
    return [(x - this.centre.x) * this.scale + this.width / 2, (y - this.centre.y) * this.scale + this.height / 2];
  }

  /** Move the view; its centre stays within the points. */
  look(x, y, zoom = this.zoom) {
    this.zoom = Math.min(Math.max(zoom, NEAREST), FARTHEST);
    this.centre = { x: Math.min(Math.max(x, 0), SIDE), y: Math.min(Math.max(y, 0), SIDE) };
    this.redraw();
  }

  pan(dx, dy) {
    this.look(this.centre.x - dx / this.scale, this.centre.y - dy / this.scale);
  }

  /** Zoom around a position. */
  zoomAt(factor, px = this.width / 2, py = this.height / 2) {
    const x = this.centre.x + (px - this.width / 2) / this.scale;
    const y = this.centre.y + (py - this.height / 2) / this.scale;
    const before = this.scale;
    this.zoom = Math.min(Math.max(this.zoom * factor, NEAREST), FARTHEST);
    const ratio = before / this.scale;
    this.look(x + (this.centre.x - x) * ratio, y + (this.centre.y - y) * ratio);
  }

  /** The point whose number is at a position, else the nearest visible point within some pixels; -1 if there is none. */
  nearest(px, py, within) {
    if (!this.x.length) return -1;
    const badge = this.badges.find(([x, y]) => Math.hypot(x - px, y - py) <= BADGE);
    if (badge) return badge[2];
    const x = this.centre.x + (px - this.width / 2) / this.scale;
    const y = this.centre.y + (py - this.height / 2) / this.scale;
    const reach = within / this.scale;
    let best = -1;
    let least = reach * reach;
    const cell = (value) => Math.min(Math.max(Math.floor(value), 0), SIDE - 1) >> 8;
    for (let row = cell(y - reach); row <= cell(y + reach); row++) {
      for (let at = this.starts[row * CELLS + cell(x - reach)]; at < this.starts[row * CELLS + cell(x + reach) + 1]; at++) {
        const i = this.members[at];
        const distance = (this.x[i] - x) ** 2 + (this.y[i] - y) ** 2;
        if (distance <= least && !this.hiddenCodes.has(this.codes[i])) {
          least = distance;
          best = i;
        }
      }
    }
    return best;
  }

  redraw() {
    this.frame ||= requestAnimationFrame(() => {
      this.frame = 0;
      this.draw();
    });
  }

  draw() {
    if (!this.image || !this.width) return;
    this.drawPoints();
    const context = this.over.getContext("2d");
    context.setTransform(this.sharpness, 0, 0, this.sharpness, 0, 0);
    context.clearRect(0, 0, this.width, this.height);
    this.drawOver(context, this);
  }

  /** Blend every point into an array of pixels, ten times as fast as drawing each on the canvas. */
  drawPoints() {
    const { width, height, data } = this.image;
    const pixels = new Uint32Array(data.buffer);
    const [r, g, b] = this.paper;
    pixels.fill(((255 << 24) | (b << 16) | (g << 8) | r) >>> 0);
    const radius = this.radius() * this.sharpness;
    const reach = Math.ceil(radius + 0.5);
    const brush = [];
    for (let dy = -reach; dy <= reach; dy++) {
      for (let dx = -reach; dx <= reach; dx++) {
        const cover = Math.min(Math.max(radius + 0.5 - Math.hypot(dx, dy), 0), 1) * (this.dimmed ? 0.3 : 0.72);
        if (cover > 0.02) brush.push([4 * (dy * width + dx), Math.round(256 * cover)]);
      }
    }
    const steps = Int32Array.from(brush, ([step]) => step);
    const covers = Int32Array.from(brush, ([, cover]) => cover);
    const scale = this.scale * this.sharpness;
    const left = width / 2 - this.centre.x * scale;
    const top = height / 2 - this.centre.y * scale;
    const { x, y, codes, colours } = this;
    const shown = new Uint8Array(256).fill(1);
    for (const code of this.hiddenCodes) shown[code] = 0;
    for (let i = 0, n = x.length; i < n; i++) {
      if (!shown[codes[i]]) continue;
      const px = (x[i] * scale + left) | 0;
      const py = (y[i] * scale + top) | 0;
      if (px < reach || py < reach || px >= width - reach || py >= height - reach) continue;
      const at = 4 * (py * width + px);
      const colour = 3 * codes[i];
      for (let j = 0; j < steps.length; j++) {
        const pixel = at + steps[j];
        const cover = covers[j];
        data[pixel] += ((colours[colour] - data[pixel]) * cover) >> 8;
        data[pixel + 1] += ((colours[colour + 1] - data[pixel + 1]) * cover) >> 8;
        data[pixel + 2] += ((colours[colour + 2] - data[pixel + 2]) * cover) >> 8;
      }
    }
    this.base.getContext("2d", { alpha: false }).putImageData(this.image, 0, 0);
  }

  /** The radius of a point: smaller for many points, larger at higher zoom. */
  radius() {
    const crowd = Math.min(Math.max(this.x.length, 500), 100_000);
    const alone = 3.6 - 2.7 * (Math.log10(crowd / 500) / Math.log10(200));
    const room = Math.min(1, 0.4 + Math.min(this.width, this.height) / 1000);
    return Math.min(Math.max(alone * room, 0.9) * this.zoom ** 0.35, 6);
  }

  /** Where the points of each code are densest, for labels. The mean of a cluster with several parts may be inside another. */
  middles() {
    const side = 32;
    const cellOf = (i) => (this.y[i] >> 11) * side + (this.x[i] >> 11);
    const counts = new Uint32Array(NONE * side * side);
    for (let i = 0; i < this.x.length; i++) if (this.codes[i] !== NONE) counts[this.codes[i] * side * side + cellOf(i)]++;
    const around = (code, cell) => {
      let sum = 0;
      for (let row = (cell >> 5) - 1; row <= (cell >> 5) + 1; row++)
        for (let column = (cell & 31) - 1; column <= (cell & 31) + 1; column++)
          if (row >= 0 && row < side && column >= 0 && column < side) sum += counts[code * side * side + row * side + column];
      return sum;
    };
    return Array.from({ length: NONE }, (_, code) => {
      let best = -1;
      let most = 0;
      for (let cell = 0; cell < side * side; cell++) {
        const many = counts[code * side * side + cell] ? around(code, cell) : 0;
        if (many > most) [best, most] = [cell, many];
      }
      return best < 0 ? null : { x: ((best & 31) + 0.5) * 2048, y: ((best >> 5) + 0.5) * 2048 };
    });
  }
}
