/**
 * Colours of the map: ten for light and ten for dark backgrounds, which colour-blind people can tell apart too, and a
 * scale for numbers.
 */

const LIGHT = ["#1300ec", "#00a07a", "#ffaa0b", "#aa2a00", "#78c6da", "#442576", "#ff4517", "#a871ff", "#6f0104", "#874e90"];
const DARK = ["#56b2c9", "#cea31e", "#d40684", "#97d7a4", "#0079b1", "#ffff92", "#d105ff", "#777513", "#6fffff", "#dcd500"];
const SCALE_LIGHT = ["#3b2f80", "#2f6690", "#1f948b", "#55b15a", "#c9a400"];
const SCALE_DARK = ["#6a5acd", "#4f9bd0", "#3fc4b3", "#9be36e", "#fff06a"];

export const NONE = 255;
const NEUTRAL = { light: "#a49d91", dark: "#5d626a" };

export const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const hex = (rgb) => `#${rgb.map((one) => Math.round(one).toString(16).padStart(2, "0")).join("")}`;

export const neutral = () => (isDark() ? NEUTRAL.dark : NEUTRAL.light);

/** The colour of a category; after ten, the hues repeat, closer to grey. */
export function category(number) {
  const hues = isDark() ? DARK : LIGHT;
  const round = Math.floor(number / hues.length);
  if (!round) return hues[number];
  const share = Math.min(0.3 * round, 0.75);
  const grey = channels(neutral());
  return hex(channels(hues[number % hues.length]).map((one, i) => one + (grey[i] - one) * share));
}

/** The colour of a number, from 0 for the least to 1 for the greatest. */
export function along(share) {
  const stops = isDark() ? SCALE_DARK : SCALE_LIGHT;
  const place = Math.min(Math.max(share, 0), 1) * (stops.length - 1);
  const at = Math.min(Math.floor(place), stops.length - 2);
  const [from, to] = [channels(stops[at]), channels(stops[at + 1])];
  return hex(from.map((one, i) => one + (to[i] - one) * (place - at)));
}

/** For each code 0 to 255 three channels, ready to be drawn with. */
export function table(kind) {
  const colours = new Uint8Array(256 * 3);
  for (let code = 0; code < 256; code++) {
    const colour = code === NONE ? neutral() : kind === "number" ? along(code / 254) : category(code);
    colours.set(channels(colour), 3 * code);
  }
  return colours;
}
