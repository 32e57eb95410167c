// Colours of weights, from the palettes that Python sends: nine steps from weight 0 to weight 1.

let colours = { palettes: { blue: ["#ffffff", "#000000"] }, dark: {}, diverging: ["#ffffff", "#000000"] };

/** Use the colours of regard/look/palette.py. */
export function setColours(given) {
  colours = given;
}

/** The names of the palettes. */
export const palettes = () => Object.keys(colours.palettes);

/** Whether the page is dark now. */
export const dark = () => {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
};

/** The nine steps of a palette, as the theme wants them. */
export const steps = (palette) =>
  (dark() ? colours.dark[palette] : null) ?? colours.palettes[palette] ?? colours.palettes.blue;

const parse = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));
const hex = (part) => Math.round(part).toString(16).padStart(2, "0");

/** The colour of a value between 0 and 1. @param {string[]} hues @param {number} value */
export function mix(hues, value) {
  const place = Math.min(1, Math.max(0, value)) * (hues.length - 1);
  const at = Math.min(Math.floor(place), hues.length - 2);
  const low = parse(hues[at]),
    high = parse(hues[at + 1]);
  return `#${low.map((part, i) => hex(part + (high[i] - part) * (place - at))).join("")}`;
}

/** The colour of a weight. */
export const weightColour = (weight, palette = "blue") => mix(steps(palette), weight);

/** The colour of a signed value: purple below zero, orange above, that of the page at zero. */
export const signedColour = (value, most) =>
  mix(dark() ? colours.dark.diverging : colours.diverging, most > 0 ? (value / most + 1) / 2 : 0.5);

let scale = { of: null, hues: [] };

/** A hundred steps of the signed colours, from -1 to 1: many cells need no mixing each. @returns {string[]} */
export function signedScale() {
  const hues = dark() ? colours.dark.diverging : colours.diverging;
  if (scale.of !== hues) scale = { of: hues, hues: Array.from({ length: 101 }, (_, at) => mix(hues, at / 100)) };
  return scale.hues;
}

/** Black or white, whichever has more contrast. */
export function inkOn(colour) {
  const linear = parse(colour).map((part) =>
    part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#000000" : "#ffffff";
}
