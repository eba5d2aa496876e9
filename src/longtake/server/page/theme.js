// Light or dark: as the system wants it, until one of them is chosen here.

import { byId } from "./dom.js";

const KEY = "longtake-theme";

// `onChange` is called whenever colours are others than before.
export function setUpTheme(onChange) {
  const system = matchMedia("(prefers-color-scheme: dark)");
  const apply = () => {
    document.documentElement.dataset.theme = localStorage.getItem(KEY) ?? (system.matches ? "dark" : "light");
    onChange();
  };
  system.addEventListener("change", apply);
  byId("theme").addEventListener("click", () => {
    localStorage.setItem(KEY, document.documentElement.dataset.theme === "dark" ? "light" : "dark");
    apply();
  });
  apply();
}
