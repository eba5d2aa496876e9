// A sentence over the map, until it is dismissed or another session begins.

import { byId, element } from "./dom.js";

// `actions` are pairs of a button's text and what it does.
export function showNotice(words, actions) {
  byId("notice").hidden = !words;
  byId("notice-words").textContent = words;
  const button = (text, act, kind) => element("button", { type: "button", class: kind, text, onclick: () => {
    byId("notice").hidden = true;
    act();
  } });
  byId("notice-buttons").replaceChildren(...actions.map(([text, act]) => button(text, act, "main")),
    button("Dismiss", () => {}, null));
}
