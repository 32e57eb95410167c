// The same colours as the pictures that regard draws: nine steps from weight 0 to weight 1.

export const PALETTES = {
  blue: ["#fcfdff", "#dfebf7", "#bfd7ec", "#97bfdf", "#6ba3cf", "#4585bb", "#2667a2", "#124983", "#082c5c"],
  cividis: ["#00224e", "#1a386f", "#434e6c", "#61656f", "#7d7c78", "#9b9476", "#bcae6c", "#dec958", "#fee838"],
  viridis: ["#440154", "#472d7b", "#3b528b", "#2c728e", "#21918c", "#28ae80", "#5ec962", "#addc30", "#fde725"],
};
/** The same hue where the paper is dark: nothing looked at is as dark as the paper. */
const DARK = ["#1d2024", "#202d3b", "#233b54", "#274c70", "#2d5f8e", "#3b77ad", "#5d95c7", "#8fbadf", "#d3e6f6"];
const DARK_DIVERGING = ["#b9a2f2", "#685a91", "#2b2e33", "#8a5a36", "#f2996a"];

/** Whether the page is dark now. */
export const dark = () => {
  const theme = document.documentElement.dataset.theme;
  return theme === "dark" || (theme !== "light" && matchMedia("(prefers-color-scheme: dark)").matches);
};

/** The nine steps of a palette, as the theme wants them. */
export const steps = (palette) => (palette === "blue" && dark() ? DARK : (PALETTES[palette] ?? PALETTES.blue));

const DIVERGING = ["#5e3c99", "#b2abd2", "#f7f7f7", "#fdb863", "#e66101"];

const parse = (colour) => [1, 3, 5].map((at) => parseInt(colour.slice(at, at + 2), 16));

/** The colour of a value between 0 and 1. @param {string[]} colours @param {number} value */
export function mix(colours, value) {
  const place = Math.min(1, Math.max(0, value)) * (colours.length - 1);
  const at = Math.min(Math.floor(place), colours.length - 2);
  const low = parse(colours[at]),
    high = parse(colours[at + 1]);
  return `#${low
    .map((part, i) =>
      Math.round(part + (high[i] - part) * (place - at))
        .toString(16)
        .padStart(2, "0"),
    )
    .join("")}`;
}

/** The colour of a weight. */
export const weightColour = (weight, palette = "blue") => mix(steps(palette), weight);

/** The colour of a signed value: purple below zero, orange above, that of the paper at zero. */
export const signedColour = (value, most) =>
  mix(dark() ? DARK_DIVERGING : DIVERGING, most > 0 ? (value / most + 1) / 2 : 0.5);

/** Black or white, whichever reads better on a colour. */
export function inkOn(colour) {
  const linear = parse(colour).map((part) =>
    part / 255 <= 0.03928 ? part / 255 / 12.92 : ((part / 255 + 0.055) / 1.055) ** 2.4,
  );
  return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2] > 0.179 ? "#000000" : "#ffffff";
}
