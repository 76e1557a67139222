/** Marks drawn over the points: cluster labels, hits with their ranks, the query, the cross. */

import { category } from "./palette.js";

const MOST_LABELS = 14;
const LONGEST_LABEL = 30;
const RADIUS = 10; // of a hit
const GAP = 3; // between hits
const STEPS = 80; // in which hits move apart
const MOST_APART = 100;

const ink = (marks) => (marks.dark ? "#f4f2ee" : "#1d1b18");
const paper = (marks) => (marks.dark ? "#131518" : "#ffffff");
const accent = (marks) => (marks.dark ? "#ffd166" : "#b02a0f");

export function drawMarks(context, map, marks) {
  context.lineJoin = "round";
  context.textAlign = "center";
  context.textBaseline = "middle";
  const lit = marks.hits.filter((hit) => hit.point >= 0);
  const places = apart(lit.map(({ point }) => map.place(point)));
  map.badges = lit.map(({ point }, n) => [...places[n], point]);
  if (lit.length) drawQuery(context, map, marks, lit);
  drawLabels(context, map, marks, places);
  lit.forEach((hit, n) => drawLead(context, marks, map.place(hit.point), places[n]));
  for (let n = lit.length - 1; n >= 0; n--) drawHit(context, marks, lit[n], places[n]);
  if (marks.hovered >= 0) ring(context, ...map.place(marks.hovered), 9, ink(marks), paper(marks));
  if (marks.cross) drawCross(context, map, marks);
}

/** Move places apart until circles around them do not overlap. Each stays as near to where it belongs as the others allow. */
export function apart(belongs) {
  const places = belongs.map(([x, y]) => [x, y]);
  const least = 2 * RADIUS + GAP;
  for (let step = 0; step < STEPS; step++) {
    let moved = false;
    const count = Math.min(places.length, MOST_APART);
    for (let i = 0; i < count; i++) {
      for (let j = i + 1; j < count; j++) {
        let [dx, dy] = [places[j][0] - places[i][0], places[j][1] - places[i][1]];
        const distance = Math.hypot(dx, dy);
        if (distance >= least - 0.01) continue;
        if (distance < 0.01) [dx, dy] = [Math.cos(2.4 * j), Math.sin(2.4 * j)]; // the same place: in the direction of the rank
        const push = (least - distance) / 2 / (Math.hypot(dx, dy) || 1);
        places[i] = [places[i][0] - dx * push, places[i][1] - dy * push];
        places[j] = [places[j][0] + dx * push, places[j][1] + dy * push];
        moved = true;
      }
    }
    if (!moved) break;
  }
  return places;
}

/** Draw the labels of the largest clusters without overlaps. */
function drawLabels(context, map, marks, hits) {
  const taken = hits.map(([x, y]) => [x, y, RADIUS]);
  const before = taken.length;
  context.font = "600 12.5px system-ui, sans-serif";
  const shown = marks.labels.filter(({ number }) => !map.hiddenCodes.has(number));
  for (const { x, y, label, number } of shown.sort((a, b) => b.documents - a.documents)) {
    if (taken.length - before >= MOST_LABELS) break;
    const text = label.length > LONGEST_LABEL ? `${label.slice(0, LONGEST_LABEL - 1)}…` : label;
    const [px, py] = map.placeOf(x, y);
    const half = context.measureText(text).width / 2 + 6;
    if (px - half < 0 || px + half > map.width || py < 12 || py > map.height - 12) continue;
    if (taken.some(([ax, ay, ahalf]) => Math.abs(ax - px) < ahalf + half && Math.abs(ay - py) < 26)) continue;
    taken.push([px, py, half]);
    halo(context, text, px, py, ink(marks), paper(marks), category(number));
  }
}

/** Text that can be read on any points, underlined in the colour of its cluster. */
function halo(context, text, x, y, colour, around, line) {
  context.lineWidth = 4;
  context.strokeStyle = around;
  context.strokeText(text, x, y);
  context.fillStyle = colour;
  context.fillText(text, x, y);
  const half = context.measureText(text).width / 2;
  for (const [width, style] of [[5, around], [3, line]]) {
    context.beginPath();
    context.moveTo(x - half, y + 10);
    context.lineTo(x + half, y + 10);
    context.lineWidth = width;
    context.strokeStyle = style;
    context.stroke();
  }
}

function ring(context, x, y, radius, colour, around) {
  for (const [width, style] of [[5, around], [2.2, colour]]) {
    context.beginPath();
    context.arc(x, y, radius, 0, 2 * Math.PI);
    context.lineWidth = width;
    context.strokeStyle = style;
    context.stroke();
  }
}

/** A line from a hit that was moved aside to its point. */
function drawLead(context, marks, [x, y], [px, py]) {
  if (Math.hypot(px - x, py - y) < 3) return;
  for (const [width, style] of [[4, paper(marks)], [1.6, accent(marks)]]) {
    context.beginPath();
    context.moveTo(x, y);
    context.lineTo(px, py);
    context.lineWidth = width;
    context.strokeStyle = style;
    context.stroke();
  }
  context.beginPath();
  context.arc(x, y, 3.2, 0, 2 * Math.PI);
  context.fillStyle = accent(marks);
  context.fill();
}

function drawHit(context, marks, hit, [x, y]) {
  context.beginPath();
  context.arc(x, y, RADIUS, 0, 2 * Math.PI);
  context.fillStyle = accent(marks);
  context.strokeStyle = paper(marks);
  context.lineWidth = 2;
  context.stroke();
  context.fill();
  context.font = `700 ${hit.rank > 99 ? 9 : 11}px system-ui, sans-serif`;
  context.fillStyle = paper(marks);
  context.fillText(String(hit.rank), x, y + 0.5);
}

/** The query has no point of its own. It is drawn at the mean of its hits, weighted by rank. */
export function queryPlace(map, hits) {
  let [x, y, sum] = [0, 0, 0];
  for (const { point, rank } of hits) {
    x += map.x[point] / rank;
    y += map.y[point] / rank;
    sum += 1 / rank;
  }
  return map.placeOf(x / sum, y / sum);
}

function drawQuery(context, map, marks, hits) {
  const [x, y] = queryPlace(map, hits);
  context.strokeStyle = ink(marks);
  context.globalAlpha = 0.28;
  context.lineWidth = 1;
  context.beginPath();
  for (const { point } of hits) {
    context.moveTo(x, y);
    context.lineTo(...map.place(point));
  }
  context.stroke();
  context.globalAlpha = 1;
  context.beginPath();
  context.moveTo(x, y - 13);
  context.lineTo(x + 13, y);
  context.lineTo(x, y + 13);
  context.lineTo(x - 13, y);
  context.closePath();
  context.lineWidth = 3;
  context.strokeStyle = paper(marks);
  context.stroke();
  context.fillStyle = ink(marks);
  context.fill();
}

function drawCross(context, map, marks) {
  const [x, y] = [map.width / 2, map.height / 2];
  context.lineWidth = 1.5;
  context.strokeStyle = ink(marks);
  context.beginPath();
  for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
    context.moveTo(x + 5 * dx, y + 5 * dy);
    context.lineTo(x + 16 * dx, y + 16 * dy);
  }
  context.stroke();
}
