// Signs for buttons, drawn, since fonts differ in which they have.

import { svg } from "./dom.js";

const PATHS = {
  first: "M4 3v10M13 3 6.5 8 13 13Z",
  back: "M11.5 3 5 8l6.5 5Z",
  play: "M4.5 2.5 13 8l-8.5 5.5Z",
  pause: "M4.5 3v10M11 3v10",
  next: "M4.5 3 11 8l-6.5 5Z",
  last: "M12 3v10M3 3l6.5 5L3 13Z",
  swap: "M2 5.5h11M10 2.5l3 3-3 3M14 10.5H3M6 7.5l-3 3 3 3",
};

/** A sign of 16 by 16. */
export const icon = (name) =>
  svg(
    "svg",
    { class: `icon ${name}`, width: 16, height: 16, viewBox: "0 0 16 16", "aria-hidden": "true" },
    svg("path", { d: PATHS[name] }),
  );
