// V6, a picture and its caption, comes with the captioning model. Its place is ready: a trace with an image opens this tab.

import { h, put } from "./dom.js";

class Picture extends HTMLElement {
  connectedCallback() {
    put(this, h("p", { class: "empty" }, "This trace belongs to a picture; drawing what was looked at in it is not part of this version."));
  }
}

customElements.define("regard-picture", Picture);
