// A live figure: its still picture is replaced by the page, which runs the model in this browser, when somebody asks for it.

for (const figure of document.querySelectorAll("figure.live")) {
  const button = figure.querySelector("button");
  button.hidden = typeof WebAssembly !== "object";
  button.addEventListener("click", () => {
    const frame = document.createElement("iframe");
    frame.title = "A model in your browser: type a sentence and see its attention";
    frame.src = figure.dataset.page;
    figure.querySelector("img").replaceWith(frame);
    button.remove();
    frame.focus();
  });
}
