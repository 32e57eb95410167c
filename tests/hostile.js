// Shows hostile texts in every place of the page that shows text, and exports them. Run inside the page by a test.

async function show(texts) {
  const { state } = await import("/page/state.js");
  const { Trace } = await import("/page/trace.js");
  const { bundle } = await import("/page/bundle.js");
  const { alone } = await import("/page/export.js");
  const { host } = await import("/page/host.js");
  const markup = "script, iframe, img, object, embed, link, meta, base, style, form";
  const count = () => document.querySelectorAll(markup).length;
  const before = count(),
    files = [],
    together = 10;
  const { ramps, summaries } = state.get("trace").tree.views,
    colours = { ramps, summaries };

  for (let at = 0; at < texts.length; at += together) {
    const some = texts.slice(at, at + together),
      text = some[0],
      told = JSON.stringify(some);
    const trace = new Trace(plain(some, colours));
    host.step = async (t) => step(some, t);
    host.path = host.worth = async () => null; // the server has not seen these
    const side = { code: text, name: text };
    const model = { id: text, name: text, source: side, target: side, examples: some };
    const sentences = some.map((one) => ({
      source: [0, 0],
      of: text,
      translatedText: one,
      done: true,
      flags: [],
      unknown: some,
    }));
    const swapped = { before: text, words: some };
    state.set({ trace, text: some.join(" "), sentences, swapped, error: "", models: [model], t: 0, s: 0, sub: 6 });
    for (const chosen of [
      { view: "alignment", form: "ribbons" },
      { form: "matrix" },
      { form: "table" },
      { view: "steps" },
      { view: "beam", tree: "drawing" },
      { tree: "list" },
      { tree: "table" },
      { view: "compare" },
    ]) {
      state.set(chosen);
      await new Promise((done) => setTimeout(done));
      const drawing = document.querySelector(".view svg.matrix, .view svg.ribbons, .view svg.tree");
      if (!drawing) continue;
      const parsed = new DOMParser().parseFromString(alone(drawing), "image/svg+xml");
      if (parsed.querySelector("parsererror")) throw new Error(`the SVG of ${told} is broken`);
      if (parsed.querySelector("script, a, image, foreignObject")) throw new Error(`the SVG of ${told} holds markup`);
    }
    state.set({ error: some.join(" ") });
    if (count() !== before) throw new Error(`${told} became markup`);
    if (globalThis.pwned) throw new Error(`${told} ran`);
    if (at % (5 * together) === 0) files.push(await bundle(trace, "steps"));
  }
  return files;
}

function plain(some, colours) {
  const text = some[0],
    each = 1 / some.length;
  const rows = some.map(() => some.map(() => each));
  const tokens = some.map((one, at) => ({
    text: one,
    piece: one,
    start: 0,
    end: 0,
    special: at === 1,
    word: at,
    logprob: -1,
    topk: [{ text: one, logprob: -1 }],
  }));
  const side = { text: some.join(" "), tokens };
  const nodes = some.map((token, id) => ({
    id,
    parent: id ? id - 1 : null,
    step: id + 1,
    token,
    logprob: -1,
    total: -1,
    score: -1,
    finished: id === some.length - 1,
    pruned: false,
  }));
  return {
    trace: 1,
    model: { id: text, kind: text, name: text },
    source: side,
    target: side,
    changes: [{ kind: "mask", text }],
    attention: {
      [text]: {
        name: text,
        weights: [rows],
        scores: [rows],
        kind: "cross",
        layer: 0,
        query: "previous",
        shift: 0,
        score: text,
        normalise: "softmax",
      },
    },
    beam: { size: 2, nodes, ranked: [some.length - 1] },
    translations: [{ node: some.length - 1, text, score: -1, logprob: -1 }],
    views: views(some, colours),
  };
}

function views(some, colours) {
  const text = some[0],
    labels = some.map((one, at) => ({ text: one, tokens: [at], special: at === 1 }));
  const table = {
    rows: labels,
    columns: labels,
    weights: null,
    hidden: [0],
    captions: { hidden: text, renormalised: text, shown: text },
    right_to_left: false,
  };
  const measures = [{ entropy: 1, diagonality: 1, special: 0 }];
  const seen = {
    name: text,
    leading: true,
    text,
    heads: [text],
    combined: null,
    measures,
    words: null,
    pieces: [table],
  };
  return {
    modules: [seen],
    default: text,
    changed: { rows: [], columns: [] },
    right_to_left: false,
    maps: null,
    ...colours,
  };
}

function step(some, t) {
  const each = some.map(() => 1 / some.length),
    states = some.map(() => [1, 2]);
  return {
    t,
    name: some[0],
    head: 0,
    heads: 1,
    changed: false,
    query: [1, 2],
    formula: { kind: "dot", left: [1, 2], right: states, scale: 1 },
    scores: some.map(() => 5),
    weights: each,
    values: states,
    context: [1, 2],
    centre: null,
    half_width: 0,
    output: {
      words: some.map((one, at) => ({ piece: one, text: one, logit: 0, chosen: at === 0 })),
      log_total: 1,
      vocabulary: 9,
    },
  };
}
