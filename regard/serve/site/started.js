// Says that the page did not start. It is no module, so that it runs where one of them is missing, damaged, or written
// for later browsers than this one.

addEventListener("load", () => {
  if (document.querySelector("header .tools").hasChildNodes()) return; // app.js has begun
  const said = document.createElement("p");
  said.className = "error card";
  said.setAttribute("role", "alert");
  said.textContent = "The page cannot start: a file in its folder page/ is missing or damaged, or this browser is too old; reload the page, or use a current browser.";
  document.querySelector("main").replaceChildren(said);
});
