// Two lists of words and the weights between them, cut into lines that fit beside each other: as much weight as possible
// stays within a line, and there are few lines, of about the same length.

const COST = 1; // of another line, in words whose attention would leave the line
const MOST = 30; // words of one side in a line

/**
 * The ends of the lines.
 * @param {number[]} above widths of the words above @param {number[]} below widths of the words below
 * @param {number[][]} weights a row for each word below @param {number} room width of a line
 * @returns {{columns: [number, number], rows: [number, number]}[]}
 */
export function lines(above, below, weights, room) {
  const [S, T] = [above.length, below.length],
    place = (t, s) => t * (S + 1) + s;
  const left = firsts(above, room),
    top = firsts(below, room);
  const mass = new Float64Array((T + 1) * (S + 1)); // of all cells above and to the left
  for (let t = 1; t <= T; t++)
    for (let s = 1, row = 0; s <= S; s++) {
      row += weights[t - 1][s - 1];
      mass[place(t, s)] = mass[place(t - 1, s)] + row;
    }
  const [over, under] = [above, below].map((sizes) => sizes.reduce((sums, one) => [...sums, sums.at(-1) + one], [0]));
  const empty = (a, b, t, s) => 1 - Math.max(over[s] - over[b], under[t] - under[a]) / room; // share of a line
  const best = new Float64Array(mass.length).fill(-Infinity),
    from = new Int32Array(mass.length);
  best[0] = 0;
  for (let t = 0; t <= T; t++)
    for (let s = 0; s <= S; s++)
      for (let a = top[t]; a <= t; a++)
        for (let b = left[s]; b <= s; b++) {
          const before = place(a, b),
            inside = mass[place(t, s)] - mass[place(a, s)] - mass[place(t, b)] + mass[before],
            value = best[before] + inside - COST - empty(a, b, t, s) ** 2;
          if (before !== place(t, s) && value > best[place(t, s)]) {
            best[place(t, s)] = value;
            from[place(t, s)] = before;
          }
        }
  const found = [];
  for (let at = place(T, S); at > 0; at = from[at]) {
    const [t, s] = [Math.floor(at / (S + 1)), at % (S + 1)],
      [a, b] = [Math.floor(from[at] / (S + 1)), from[at] % (S + 1)];
    found.unshift({ columns: [b, s], rows: [a, t] });
  }
  return found;
}

/** For each end of a line, its earliest beginning; one word always fits. */
function firsts(sizes, room) {
  const found = [0];
  for (let end = 1; end <= sizes.length; end++) {
    let at = end - 1,
      width = sizes[at];
    while (at > 0 && end - at < MOST && width + sizes[at - 1] <= room) width += sizes[--at];
    found.push(at);
  }
  return found;
}
