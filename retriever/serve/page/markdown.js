/**
 * Markdown as elements: headings, paragraphs, lists, quotes, code and tables. Everything is made of text nodes, never by
 * parsing HTML, and HTML in the text stays text. Every piece knows its offset, so that a part of the text can be marked.
 */

import { el } from "./dom.js";

const FENCE = /^ {0,3}(`{3,}(?=[^`]*$)|~{3,})/;
const HEADING = /^ {0,3}(#{1,6})[ \t]+(.*?)[ \t#]*$/;
const ITEM = /^([ \t]*)(?:[-*+]|\d{1,9}[.)])[ \t]+/;
const QUOTE = /^ {0,3}> ?/;
const ROW = /^[ \t]*\|.*\|[ \t]*$/;
const RULE_OF_TABLE = /^[ \t]*\|?[ \t:|-]+\|[ \t:|-]*$/;
const RULE = /^ {0,3}(?:(?:\*[ \t]*){3,}|(?:-[ \t]*){3,}|(?:_[ \t]*){3,})$/;
// Code, an image or a link, an address, or a mark of emphasis. Underscores count only outside of words.
const INLINE = /(`+)(?!`)(.{1,400}?)(?<!`)\1(?!`)|!?\[([^\]\n]{0,400})\]\(([^)\s]{0,2000})(?:\s{1,9}"[^"]{0,400}")?\)|<(https?:\/\/[^\s<>]{1,2000})>|(\*\*|__)(?=\S)(.{1,400}?)(?<=\S)\6|(\*)(?=[^\s*])([^*\n]{1,400}?)(?<=\S)\*|(?<![\p{L}\p{N}_])_(?=\S)([^_\n]{1,400}?)(?<=\S)_(?![\p{L}\p{N}_])/gsu;
// The lengths above and these limits keep the time linear in the length of any text.
const LONGEST_LINE = 2000; // a longer line is a paragraph
const LONGEST_TEXT = 500_000; // a longer text is shown as it is
const DEEPEST = 4;

const is = (kind, line) => line.length <= LONGEST_LINE && kind.test(line);

/** Formats whose stored text is written as Markdown. */
const FORMATS = new Set(["md", "rst", "ipynb", "html", "eml", "docx", "pptx", "epub"]);
export const isMarkdown = (metadata) => FORMATS.has(metadata?.format);

/** Return the text as elements; the part between two UTF-16 offsets is marked. */
export function rendered(text, start = null, end = null) {
  const mark = start !== null && end > start ? [start, end] : null;
  return text.length > LONGEST_TEXT ? [el("p", { class: "as-it-is" }, pieces(text, 0, mark))] : blocks(linesOf(text), mark);
}

/** Lines as pairs of their text and their offset. */
function linesOf(text) {
  const lines = [];
  let at = 0;
  for (const line of text.split("\n")) {
    lines.push([line.replace(/\r$/, ""), at]);
    at += line.length + 1;
  }
  return lines;
}

function blocks(lines, mark, depth = 0) {
  const made = [];
  for (let i = 0; i < lines.length; ) {
    const [line, at] = lines[i];
    const from = i;
    const heading = is(HEADING, line) && HEADING.exec(line);
    const fence = FENCE.exec(line)?.[1];
    const while_ = (fits) => {
      while (i < lines.length && fits(lines[i][0], i)) i++;
      return lines.slice(from, i);
    };
    if (!line.trim() || is(RULE, line)) i++;
    else if (fence) {
      const close = new RegExp(`^ {0,3}\\${fence[0]}{${fence.length},}[ \\t]*$`);
      for (i++; i < lines.length && !close.test(lines[i][0]); ) i++;
      made.push(el("pre", { tabindex: "0" }, el("code", {}, plain(lines.slice(from + 1, i++), mark))));
    } else if (heading) {
      i++;
      made.push(el("p", { class: "heading" }, inline(heading[2], at + line.indexOf(heading[2], heading[1].length), mark)));
    } else if (is(ROW, line)) made.push(table(while_((one) => is(ROW, one) || is(RULE_OF_TABLE, one)), mark));
    else if (QUOTE.test(line) && depth < DEEPEST) {
      const quoted = while_((one) => QUOTE.test(one)).map(([one, place]) => [one.replace(QUOTE, ""), place + QUOTE.exec(one)[0].length]);
      made.push(el("blockquote", {}, blocks(quoted, mark, depth + 1)));
    } else if (ITEM.test(line) && depth < DEEPEST) {
      const ordered = /\d/.test(ITEM.exec(line)[0]);
      made.push(el(ordered ? "ol" : "ul", {}, items(while_((one, n) => n === from || ITEM.test(one) || (one.trim() && /^[ \t]{2,}/.test(one))), mark, depth)));
    } else {
      i++;
      const paragraph = while_((one) => one.trim() && ![HEADING, FENCE, ROW, QUOTE, ITEM, RULE].some((kind) => is(kind, one)));
      made.push(el("p", {}, paragraph.flatMap(([one, place], n) => [...(n ? pieces(" ", place - 1, mark) : []), ...inlineLine(one, place, mark)])));
    }
  }
  return made;
}

const inlineLine = (line, at, mark) => {
  const bare = line.trim();
  return inline(bare, at + line.indexOf(bare), mark);
};

/** The items of a list; lines that are indented further belong to the item before them. */
function items(lines, mark, depth) {
  const width = (line) => ITEM.exec(line)?.[1].length ?? Infinity;
  const least = Math.min(...lines.map(([line]) => width(line)));
  const found = [];
  for (const [line, at] of lines) {
    if (width(line) <= least + 1 || !found.length) {
      const lead = ITEM.exec(line)?.[0].length ?? 0;
      found.push([[line.slice(lead), at + lead]]);
    } else {
      const lead = ITEM.test(line) ? 0 : line.length - line.trimStart().length;
      found.at(-1).push([line.slice(lead), at + lead]);
    }
  }
  return found.map((own) => el("li", {}, own.length > 1 ? blocks(own, mark, depth + 1) : inlineLine(...own[0], mark)));
}

function table(lines, mark) {
  const rows = lines.filter(([line]) => !RULE_OF_TABLE.test(line)).map(([line, at]) => {
    const cells = [];
    let place = line.indexOf("|") + 1;
    for (const cell of line.slice(place).trimEnd().replace(/\|$/, "").split(/(?<!\\)\|/)) {
      cells.push(el("td", {}, inlineLine(cell, at + place, mark)));
      place += cell.length + 1;
    }
    return el("tr", {}, cells);
  });
  return el("div", { class: "wide", tabindex: "0" }, el("table", {}, el("tbody", {}, rows)));
}

const plain = (lines, mark) => lines.flatMap(([line, at], n) => pieces(n ? `\n${line}` : line, n ? at - 1 : at, mark));

/** The text between two offsets, with the marked part in a mark. */
function pieces(text, at, mark) {
  if (!text) return [];
  if (!mark || mark[1] <= at || mark[0] >= at + text.length) return [text];
  const [from, to] = [Math.max(mark[0] - at, 0), Math.min(mark[1] - at, text.length)];
  return [text.slice(0, from), el("mark", {}, text.slice(from, to)), text.slice(to)].filter((part) => part !== "");
}

/** Code, links and emphasis within a line. Only web addresses become links. */
function inline(text, at, mark, depth = 0) {
  const made = [];
  let done = 0;
  for (const match of text.matchAll(INLINE)) {
    const [whole, , code, label, target, address, , strong, , emphasis, under] = match;
    const within = (part, lead) => (depth < DEEPEST ? inline(part, at + match.index + lead, mark, depth + 1) : pieces(part, at + match.index + lead, mark));
    made.push(...pieces(text.slice(done, match.index), at + done, mark));
    done = match.index + whole.length;
    if (code !== undefined) made.push(el("code", {}, pieces(code, at + match.index + whole.indexOf(code), mark)));
    else if (label !== undefined) made.push(...linked(target, within(label, whole.indexOf("[") + 1), whole[0] !== "!"));
    else if (address !== undefined) made.push(...linked(address, pieces(address, at + match.index + 1, mark), true));
    else if (strong !== undefined) made.push(el("strong", {}, within(strong, 2)));
    else made.push(el("em", {}, within(emphasis ?? under, 1)));
  }
  return [...made, ...pieces(text.slice(done), at + done, mark)];
}

const linked = (target, children, isLink) => (isLink && isWeb(target) ? [webLink(target, ...children)] : children);

export const isWeb = (value) => typeof value === "string" && /^https?:\/\/[^\s/]+/i.test(value) && URL.canParse(value);

/** A link to another site, which learns nothing of this page. */
export const webLink = (address, ...children) => el("a", { href: address, target: "_blank", rel: "noopener noreferrer nofollow" }, ...children);
