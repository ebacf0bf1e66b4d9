// Everything the pointer can do, by keys.

import { $ } from "./dom.js";
import * as missing from "./missing.js";
import { setMode } from "./modes.js";
import * as path from "./path.js";
import { nearby, scatter } from "./plane.js";
import * as point from "./point.js";
import { select, size, space, state, undo } from "./store.js";
import { openTab } from "./tabs.js";

function step(axis, sign, large) {
  const { low, high } = space();
  const z = [...state.latent];
  z[axis] += sign * ((high[axis] - low[axis]) / (large ? 10 : 50) || 0.1);
  point.move(z, -1);
}

const KEYS = {
  ArrowLeft: (large) => step(state.axes[0], -1, large),
  ArrowRight: (large) => step(state.axes[0], 1, large),
  ArrowUp: (large) => size() > 1 && step(state.axes[1], 1, large),
  ArrowDown: (large) => size() > 1 && step(state.axes[1], -1, large),
  e: () => setMode("explore"),
  l: () => setMode("lasso"),
  p: () => setMode("pan"),
  "+": () => scatter.zoomBy(1.5),
  "=": () => scatter.zoomBy(1.5),
  "-": () => scatter.zoomBy(1 / 1.5),
  0: () => scatter.fit(),
  a: () => { openTab("path"); path.setEnd(0, state.latent); },
  b: () => { openTab("path"); path.setEnd(1, state.latent); },
  " ": () => path.toggle(),
  s: selectNear,
  Enter: () => {
    if (!state.model.rows) return;
    const [row] = nearby(1);
    if (state.tab === "missing") missing.choose(row);
    point.moveToRow(row);
  },
};

function selectNear() {
  if (!state.model.rows) return;
  select(nearby(50));
  openTab("selection");
}

$("plot").addEventListener("keydown", (event) => {
  if (!state.model || event.ctrlKey || event.metaKey || event.altKey) return;
  const action = KEYS[event.key.length === 1 ? event.key.toLowerCase() : event.key];
  if (!action) return;
  event.preventDefault();
  action(event.shiftKey);
});

window.addEventListener("keydown", (event) => {
  if (!state.model) return;
  const writing = event.target.matches?.("input[type=text], input[type=search], textarea");
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !writing) {
    event.preventDefault();
    undo();
  } else if (event.key === "Escape" && state.selection.length && !$("keys").open) select([]);
});
