// Movement that explains: a number travels from where it came from to where it goes. Readers who want no movement get
// the same pictures, one after the other.

import { still } from "./dom.js";

const TIME = 700; // milliseconds

const moves = (element) => !still() && typeof element?.animate === "function";

function run(element, frames, delay = 0) {
  if (moves(element)) element.animate(frames, { duration: TIME, delay, easing: "ease-in-out", fill: "backwards" });
}

/** How far `element` is from `other`, as a transform. */
const towards = (element, other) => {
  const here = element.getBoundingClientRect(),
    there = other.getBoundingClientRect();
  return `translate(${there.left - here.left}px, ${there.top - here.top}px)`;
};

/** An element arrives from the place of another one. */
export const arrive = (element, from) =>
  moves(element) && run(element, [{ transform: towards(element, from), opacity: 0.4 }, { transform: "none" }]);

/** An element goes to the place of another one, and is then where it was. */
export const pour = (element, to, delay) =>
  moves(element) &&
  run(
    element,
    [
      { transform: "none", opacity: 1 },
      { transform: towards(element, to), opacity: 0.25, offset: 0.75 },
      { transform: towards(element, to), opacity: 0, offset: 0.76 },
      { transform: "none", opacity: 0, offset: 0.77 },
      { transform: "none", opacity: 1 },
    ],
    delay,
  );

/** An element fades in. */
export const appear = (element, delay) => run(element, [{ opacity: 0 }, { opacity: 1 }], delay);

/**
 * A bar of a score becomes the bar of a weight: first exp of the score, then that divided by the sum.
 * @param {HTMLElement} bar @param {{score: number, power: number, weight: number, from: string}} shares of the track
 */
export function become(bar, { score, power, weight, from }) {
  const wide = (share) => `${(100 * share).toFixed(2)}%`;
  run(bar, [
    { width: wide(score), backgroundColor: from },
    { width: wide(power), backgroundColor: from, offset: 0.5 },
    { width: wide(weight) },
  ]);
}
