// What surrounds the views. The server's page fills in what only a server can answer; a file has the steps alone, and
// the views then leave out what needs a server.

export const host = {
  /** Whether a server answers. */
  live: false,
  /** The description of the chosen model, and the models that translate. */
  model: () => null,
  translators: () => [],
  /** The numbers of step t of a module and head. @returns {Promise<object>} */
  step: async (t, seen, head, lane) => null,
  /** The same without what-ifs. */
  before: async (t, seen, head) => null,
  /** The way of step t through the layers of a Transformer, or null. */
  path: async (t, seen, lane) => null,
  /** How much less likely the translation is without each head, or null. */
  worth: async () => null,
  /** A trace with the source words that each word came from, by a method; `against` is a piece to compare with. */
  attribute: async (method, against) => null,
  /** Translate the text again, or from a prefix. */
  translate: () => {},
  goOn: (prefix) => {},
  /** Open the list of alternatives after a prefix. */
  alternatives: (anchor, prefix, current, back) => {},
  /** Another model's trace of the same sentence. */
  elsewhere: async (id) => null,
  /** The alignment error of every head, or null. */
  alignmentErrors: async () => null,
  /** The page of an exported file, without data. @returns {Promise<string>} */
  file: async () => "",
};
