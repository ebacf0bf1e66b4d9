// The panels beside the plot, one at a time.

import { $, count, el } from "./dom.js";
import * as missing from "./missing.js";
import * as path from "./path.js";
import * as point from "./point.js";
import * as samples from "./samples.js";
import * as selection from "./selection.js";
import { on, state } from "./store.js";

const PANELS = { point, path, selection, missing, samples };
const TABS = Object.keys(PANELS);

/** Make every panel anew, for another component of the model. */
export function buildPanels() {
  for (const panel of Object.values(PANELS)) panel.build();
}

/** Show a panel; a path stops when it is left. */
export function openTab(name, focus = false) {
  state.tab = name;
  for (const tab of TABS) {
    const mine = tab === name;
    $(`tab-${tab}`).setAttribute("aria-selected", String(mine));
    $(`tab-${tab}`).tabIndex = mine ? 0 : -1;
    $(`panel-${tab}`).hidden = !mine;
  }
  if (focus) $(`tab-${name}`).focus();
  if (name !== "path") path.stop();
  if (name === "point") point.show();
  if (name === "missing" && missing.chosen() < 0 && state.row >= 0) missing.choose(state.row);
}

for (const tab of TABS) {
  $(`tab-${tab}`).addEventListener("click", () => openTab(tab));
  $(`tab-${tab}`).addEventListener("keydown", (event) => {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step) openTab(TABS[(TABS.indexOf(tab) + step + TABS.length) % TABS.length], true);
  });
}

on("selected-count", (n) => {
  const tab = $("tab-selection");
  tab.replaceChildren("Selection", ...(n ? [" ", el("span", { class: "badge" }, count(n))] : []));
});
