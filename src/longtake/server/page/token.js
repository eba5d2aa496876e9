// Asks whoever looks at the page for the server's token.

import { byId } from "./dom.js";

export function askToken(sentence) {
  byId("token-words").textContent = sentence;
  byId("token").showModal();
  return new Promise((done) => {
    byId("token").addEventListener("close", () => {
      done(byId("token-input").value.trim());
      byId("token-input").value = "";
    }, { once: true });
  });
}
