/** Marks drawn over the points: cluster labels, hits with their ranks, the query, the cross. */

import { category } from "./palette.js";

const MOST_LABELS = 14;
const LONGEST_LABEL = 30;

const ink = (marks) => (marks.dark ? "#f4f2ee" : "#1d1b18");
const paper = (marks) => (marks.dark ? "#131518" : "#ffffff");
const accent = (marks) => (marks.dark ? "#ffd166" : "#b02a0f");

export function drawMarks(context, map, marks) {
  context.lineJoin = "round";
  context.textAlign = "center";
  context.textBaseline = "middle";
  if (!marks.hits.length) drawLabels(context, map, marks);
  const lit = marks.hits.filter((hit) => hit.point >= 0);
  if (lit.length) drawQuery(context, map, marks, lit);
  for (const hit of [...lit].reverse()) drawHit(context, map, marks, hit);
  if (marks.hovered >= 0) ring(context, ...map.place(marks.hovered), 9, ink(marks), paper(marks));
  if (marks.cross) drawCross(context, map, marks);
}

/** Draw the labels of the largest clusters without overlaps. */
function drawLabels(context, map, marks) {
  const taken = [];
  context.font = "600 12.5px system-ui, sans-serif";
  const shown = marks.labels.filter(({ number }) => !map.hiddenCodes.has(number));
  for (const { x, y, label, number } of shown.sort((a, b) => b.documents - a.documents)) {
    if (taken.length >= MOST_LABELS) break;
    const text = label.length > LONGEST_LABEL ? `${label.slice(0, LONGEST_LABEL - 1)}…` : label;
    const [px, py] = map.placeOf(x, y);
    const half = context.measureText(text).width / 2 + 6;
    if (px - half < 0 || px + half > map.width || py < 12 || py > map.height - 12) continue;
    if (taken.some(([ax, ay, ahalf]) => Math.abs(ax - px) < ahalf + half && Math.abs(ay - py) < 20)) continue;
    taken.push([px, py, half]);
    halo(context, text, px, py, marks.dark ? category(number) : ink(marks), paper(marks));
  }
}

function halo(context, text, x, y, colour, around) {
  context.lineWidth = 4;
  context.strokeStyle = around;
  context.strokeText(text, x, y);
  context.fillStyle = colour;
  context.fillText(text, x, y);
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

function drawHit(context, map, marks, hit) {
  const [x, y] = map.place(hit.point);
  const radius = hit.rank > 99 ? 11 : 9;
  context.beginPath();
  context.arc(x, y, radius, 0, 2 * Math.PI);
  context.fillStyle = accent(marks);
  context.strokeStyle = paper(marks);
  context.lineWidth = 2.5;
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
