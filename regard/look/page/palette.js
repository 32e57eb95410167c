// Colours of weights, as regard/look/palette.py mixed them: 256 shades of every palette, and the ink that is read on each.

let ramps = { light: {}, dark: {} };

/** Use the colours that came with a trace. */
export function setColours(given) {
  ramps = given;
}

/** The names of the palettes. */
export const palettes = () => Object.keys(ramps.light).filter((name) => name !== "diverging");

/** Whether the page is dark now. */
export const dark = () => {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
};

/** A palette as the theme wants it: {hues, ink}. */
const ramp = (name) => (dark() ? ramps.dark[name] : null) ?? ramps.light[name] ?? ramps.light.blue;

/** The shade of a value from 0 to 1, and the ink on it. */
function shade({ hues, ink }, value) {
  const at = Math.round(255 * Math.min(1, Math.max(0, value)));
  return { fill: `#${hues.slice(6 * at, 6 * at + 6)}`, ink: ink[at] === "k" ? "#000000" : "#ffffff" };
}

/** What gives each weight its {fill, ink}. */
export const shades = (palette = "blue") => {
  const found = ramp(palette);
  return (weight) => shade(found, weight);
};

/** What gives each value from -1 to 1 its colour: purple below zero, orange above, that of the page at zero. */
export const signedHues = () => {
  const found = ramp("diverging");
  return (value) => shade(found, (value + 1) / 2).fill;
};

/** Nine shades of a palette, for a legend. */
export const legendHues = (palette) => Array.from({ length: 9 }, (_, at) => shade(ramp(palette), at / 8).fill);
