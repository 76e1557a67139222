/** Colours of the map: twelve distinct hues for light and dark backgrounds, and a scale for numbers. */

const LIGHT = ["#0b7285", "#d9480f", "#5f3dc4", "#2b8a3e", "#c2255c", "#1864ab", "#e67700", "#862e9c", "#5c940d", "#a61e4d", "#087f5b", "#7c5a2e"];
const DARK = ["#4dd0e1", "#ff9e5e", "#a996ff", "#7ddc8b", "#ff85ae", "#74b9ff", "#ffd166", "#e29bff", "#c0e35a", "#ff8a80", "#5fe0b7", "#d2b48c"];
const SCALE_LIGHT = ["#3b2f80", "#2f6690", "#1f948b", "#55b15a", "#c9a400"];
const SCALE_DARK = ["#6a5acd", "#4f9bd0", "#3fc4b3", "#9be36e", "#fff06a"];

export const NONE = 255;
const NEUTRAL = { light: "#a49d91", dark: "#5d626a" };

export const isDark = () => matchMedia("(prefers-color-scheme: dark)").matches;

const channels = (hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16));
const hex = (rgb) => `#${rgb.map((one) => Math.round(one).toString(16).padStart(2, "0")).join("")}`;

export const neutral = () => (isDark() ? NEUTRAL.dark : NEUTRAL.light);

/** The colour of a category; after twelve, the hues repeat, closer to grey. */
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
