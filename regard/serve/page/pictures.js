// What happens with a new picture: a request for its caption, and the answer in the state.

import { get, post } from "./api.js";
import { announce } from "./dom.js";
import { model } from "./session.js";
import { state } from "./state.js";
import { Trace } from "./trace.js";

const MOST = 448; // pixels on a side of what is kept of a picture

/** Whether the chosen model describes pictures. */
export const describes = () => model()?.kind === "caption";

/**
 * Have a file described. An older request that is still running is aborted.
 * @param {Blob} file @param {{name?: string, example?: number | null, right?: string}} [about]
 */
export const describe = (file, about = {}) => attempt(() => request(file, about));

/** Draw a picture like those that the model learned from, and have it described. @param {number} number */
export const drawExample = (number) =>
  attempt(async () => {
    const { id } = model(),
      query = new URLSearchParams({ model: id, number });
    const drawn = await get(`/api/v1/example?${query}`);
    if (model().id !== id) return; // another model was chosen meanwhile
    const bytes = Uint8Array.from(atob(drawn.png), (sign) => sign.charCodeAt(0));
    await request(new Blob([bytes], { type: "image/png" }), { example: number, right: drawn.caption });
  });

/** Show what the address names: an example, or the first one where there is nothing to see yet. */
export function open() {
  const { example, picture } = state.values;
  if (!model().drawn || (picture && example === picture.example)) return undefined;
  return drawExample(example ?? 0);
}

async function attempt(act) {
  state.set({ busy: true, error: "" });
  try {
    await act();
  } catch (error) {
    if (error.name === "AbortError") return;
    state.set({ busy: false, error: error.message, trace: null, picture: null, example: null });
    announce(error.message);
  }
}

async function request(file, { name = "", example = null, right = "" }) {
  const beam = state.get("beam"),
    { id } = model();
  const query = new URLSearchParams({ model: id, beam, nbest: beam });
  const answer = await post(`/api/v1/caption?${query}`, file, "trace");
  const trace = new Trace(answer.trace);
  const kept = await square(file); // only what the server took for a picture is unpacked here
  if (model().id !== id) return;
  const { t, s } = state.values;
  state.set({
    picture: { ...kept, name, example, right, nbest: answer.nbest },
    trace,
    example,
    busy: false,
    t: t !== null && t < trace.target.tokens.length ? t : null,
    s: s !== null && s < trace.cells.length ? s : null,
  });
  announce(`Caption: ${answer.caption}`);
}

/** The middle square of a picture, which is what a model sees, on white; drawn again, so without the file's metadata. */
async function square(file) {
  const bitmap = await createImageBitmap(file).catch(() => null);
  if (!bitmap) return { square: "", side: 0 };
  const across = Math.min(bitmap.width, bitmap.height),
    side = Math.min(MOST, across);
  const canvas = document.createElement("canvas");
  canvas.width = canvas.height = side;
  const brush = canvas.getContext("2d");
  brush.fillStyle = "#ffffff";
  brush.fillRect(0, 0, side, side);
  brush.imageSmoothingQuality = "high";
  const left = (bitmap.width - across) / 2,
    top = (bitmap.height - across) / 2;
  brush.drawImage(bitmap, left, top, across, across, 0, 0, side, side);
  bitmap.close();
  return { square: canvas.toDataURL(side < 256 ? "image/png" : "image/jpeg", 0.9), side };
}
