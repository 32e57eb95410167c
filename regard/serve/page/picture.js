// V6, a picture and its caption: its place. A trace with an image in it opens this tab.

import { h, put } from "./dom.js";

class Picture extends HTMLElement {
  connectedCallback() {
    put(
      this,
      h(
        "p",
        { class: "empty" },
        "This trace belongs to a picture; drawing what was looked at in it is not part of this version.",
      ),
    );
  }
}

customElements.define("regard-picture", Picture);
