// Files: choose or drop one, and get it back translated. Offered where the server translates files.

import { download, sendFile } from "./api.js";
import { button, h, notify } from "./dom.js";
import { save } from "./export.js";
import { model, settings } from "./session.js";
import { state } from "./state.js";

const endings = () => settings.supportedFilesFormat.map((one) => (one.startsWith(".") ? one : `.${one}`));

async function translateFile(file) {
  if (!file) return;
  const chosen = model();
  notify(`${file.name} is being translated\u2026`, { going: true });
  try {
    const { translatedFileUrl } = await sendFile("/translate_file", {
      file,
      source: chosen.source.code,
      target: chosen.target.code,
    });
    const { pathname } = new URL(translatedFileUrl, location.origin);
    const { blob, name } = await download(pathname);
    save(name || file.name, blob);
    notify(`${file.name} is translated and saved as ${name || file.name}`);
  } catch (error) {
    notify(`${file.name}: ${error.message}`, { error: true }); // the text and its picture stay
  }
}

/** An invisible box to choose a file with, by its `click`. @param {(file: File) => void} take */
export function fileBox(take, attributes = {}) {
  const input = h("input", {
    type: "file",
    class: "hidden",
    tabindex: -1,
    "aria-hidden": "true",
    ...attributes,
    onchange: () => {
      take(input.files[0]);
      input.value = ""; // the same file may be chosen again
    },
  });
  return input;
}

/** A button for files, shown once the server says that it takes them; files may also be dropped on the page. */
export function offerFile() {
  const input = fileBox(translateFile);
  const chooser = button("File…", () => input.click(), { class: "quiet", hidden: true });
  const takes = () => settings.filesTranslation && model()?.kind !== "caption";
  state.on(["models", "model"], () => {
    chooser.hidden = !takes();
    input.accept = endings().join(",");
    chooser.title = `Translate a file: ${endings().join(", ")}`;
  });
  document.addEventListener("dragover", (event) => takes() && event.preventDefault());
  document.addEventListener("drop", (event) => {
    if (!takes() || !event.dataTransfer.files.length) return;
    event.preventDefault();
    translateFile(event.dataTransfer.files[0]);
  });
  return [chooser, input];
}
