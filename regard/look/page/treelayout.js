// A search tree put in order: who continues whom, chains folded into one edge, and a row for every branch.

/** The tree of a beam. @param {object} beam @param {{pruned: boolean, until: number | null}} options */
export function grow(beam, { pruned, until }) {
  const nodes = beam.nodes.filter((node) => (pruned || !node.pruned) && (until === null || node.step <= until));
  const children = new Map();
  for (const node of nodes) {
    const at = node.parent ?? "root";
    if (!children.has(at)) children.set(at, []);
    children.get(at).push(node);
  }
  const best = new Set(path(beam, beam.ranked[0]).map((node) => node.id));
  const alive = new Set();
  for (const id of beam.ranked) for (const node of path(beam, id)) alive.add(node.id);
  const build = (node) => {
    const chain = [node];
    let next = children.get(node.id) ?? [];
    while (next.length === 1 && !chain.at(-1).finished) {
      chain.push(next[0]);
      next = children.get(next[0].id) ?? [];
    }
    const branches = next.map(build).sort((a, b) => b.best - a.best || b.last.total - a.last.total);
    const last = chain.at(-1);
    const rank = last.finished ? beam.ranked.indexOf(last.id) : -1;
    const own = last.finished ? last.score : -Infinity;
    return {
      chain,
      first: chain[0],
      last,
      branches,
      rank,
      best: Math.max(own, ...branches.map((one) => one.best), last.pruned ? -1e6 : -1e5 + last.total),
      main: best.has(last.id),
      alive: alive.has(last.id),
    };
  };
  const roots = (children.get("root") ?? []).map(build).sort((a, b) => b.best - a.best);
  let line = 0;
  const place = (one) => {
    one.branches.forEach(place);
    one.y = one.branches.length ? one.branches[0].y : line++;
    return one;
  };
  roots.forEach(place);
  return { roots, lines: Math.max(1, line) };
}

/** The nodes from the beginning to `id`. */
export function path(beam, id) {
  const nodes = new Map(beam.nodes.map((node) => [node.id, node]));
  const found = [];
  for (let node = nodes.get(id); node; node = nodes.get(node.parent)) found.unshift(node);
  return found;
}

/** Every branch of a tree, parents first. */
export const walk = (roots, parent = null) => roots.flatMap((one) => [{ one, parent }, ...walk(one.branches, one)]);
