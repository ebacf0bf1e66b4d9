// Light or dark: as the system is set, until the user chooses here.

import { $ } from "./dom.js";
import { isDark } from "./palette.js";
import { state, tell } from "./store.js";

const preferred = window.matchMedia("(prefers-color-scheme: dark)");

export function theme() {
  const kept = localStorage.getItem("dualpca-theme");
  const dark = kept ? kept === "dark" : preferred.matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
  if (state.model) tell("theme");
}

preferred.addEventListener("change", theme);
$("theme").addEventListener("click", () => {
  localStorage.setItem("dualpca-theme", isDark() ? "light" : "dark");
  theme();
});
