// Start, wire the parts together, follow the server.

import { getColours, getModel, getPoints, health, onConnection, postJson } from "./api.js";
import { $, count, disable, el, short, toast } from "./dom.js";
import { closest, inside } from "./grid.js";
import * as missing from "./missing.js";
import { legend, paint } from "./palette.js";
import * as path from "./path.js";
import * as point from "./point.js";
import * as samples from "./samples.js";
import { Scatter } from "./scatter.js";
import * as selection from "./selection.js";
import { can, latentsOf, nameOf, names, on, select, size, space, state, tell, undo, why } from "./store.js";

const TABS = ["point", "path", "selection", "missing", "samples"];
const PANELS = { point, path, selection, missing, samples };
let column = null;
let codes = null;
let groups = null;
let scatter = null;

// --- the look ---------------------------------------------------------------

const preferred = window.matchMedia("(prefers-color-scheme: dark)");

function theme() {
  const kept = localStorage.getItem("dualpca-theme");
  const dark = kept ? kept === "dark" : preferred.matches;
  document.documentElement.dataset.theme = dark ? "dark" : "light";
  $("theme").textContent = dark ? "Light" : "Dark";
  $("theme").setAttribute("aria-label", dark ? "Use light colours" : "Use dark colours");
  if (!scatter || !state.model) return;
  recolour();
  tell("theme");
}

preferred.addEventListener("change", theme);
$("theme").addEventListener("click", () => {
  const dark = document.documentElement.dataset.theme === "dark";
  localStorage.setItem("dualpca-theme", dark ? "light" : "dark");
  theme();
});
$("help").addEventListener("click", () => $("keys").showModal());

// --- start ------------------------------------------------------------------

async function start() {
  if (location.search) history.replaceState(null, "", "/"); // the key is a cookie now
  theme();
  scatter = new Scatter($("plot"), [$("grid"), $("points"), $("overlay")], { pick, lasso, hover });
  try {
    state.model = await getModel();
  } catch (error) {
    $("summary").textContent = error.message;
    return;
  }
  describe();
  fillControls();
  await openComponent(0);
  await chooseColour(first());
  connected("ok");
  document.documentElement.dataset.ready = "true";
}

function describe() {
  const { model } = state;
  const q = model.components.length > 1 ? `${model.components.length} components` : `${size()} latents`;
  const rows = model.rows ? `${count(model.rows)} rows of ${model.source}` : "no table";
  $("summary").replaceChildren(el("b", {}, model.model), ` · ${q} · ${count(model.features.length)} features · ${rows}`);
  document.title = `${model.model} – dualpca explorer`;
  const empty = $("empty");
  empty.hidden = model.rows > 0;
  empty.textContent = can("decode")
    ? "No table was given, so there are no points to show. Click or drag anywhere to decode; name a table on the command line to see its rows."
    : "No table was given, and this model has no way back from latents: there is nothing to show. Name a table on the command line.";
  if (!model.rows) {
    disable($("colour"), "There are no rows to colour: no table was given.");
    const input = document.querySelector('input[value="lasso"]');
    disable(input, "There are no rows to select: no table was given.");
    input.parentElement.title = input.title;
    input.parentElement.setAttribute("aria-disabled", "true");
  }
  for (const [tab, what] of [["missing", "impute"], ["samples", "sample"], ["path", "decode"]]) {
    $(`tab-${tab}`).title = can(what) ? "" : why(what);
    $(`tab-${tab}`).classList.toggle("unable", !can(what));
  }
}

function fillControls() {
  const { model } = state;
  $("component-field").hidden = model.components.length < 2;
  $("component").replaceChildren(...model.components.map((one, k) => el("option", { value: String(k), title: one.name }, String(k + 1))));
  const pick = $("colour");
  pick.replaceChildren(el("option", { value: "" }, "one colour"));
  for (const [origin, name] of [["model", "From the model"], ["table", "Columns"], ["feature", "Features"]]) {
    const some = model.columns.map((one, k) => [one, k]).filter(([one]) => one.origin === origin);
    if (!some.length) continue;
    const options = some.map(([one, k]) => el("option", { value: String(k), disabled: one.kind === "none", title: one.reason }, one.name));
    pick.append(el("optgroup", { label: name }, ...options));
  }
}

/** What to colour by at first: components, else a column of categories. */
function first() {
  const { columns } = state.model;
  const good = columns.findIndex((one) => one.kind === "category" && one.origin !== "feature");
  return good < 0 ? "" : String(good);
}

async function openComponent(k) {
  state.component = k;
  state.points = state.model.rows ? await getPoints(k) : new Float32Array(0);
  state.axes = size() > 1 ? [0, 1] : [0, 0];
  state.latent = new Array(size()).fill(0);
  state.row = -1;
  state.ends = [null, null];
  $("component").value = String(k);
  if (state.model.components.length > 1 && !groups && state.model.rows) {
    groups = await getColours(state.model.columns.findIndex((one) => one.origin === "model" && one.kind === "category"));
  }
  for (const [id, at] of [["axis-x", 0], ["axis-y", 1]]) {
    $(id).replaceChildren(...space().axes.map((name, j) => el("option", { value: String(j), title: axisLabel(j) }, name)));
    $(id).value = String(state.axes[at]);
    if (size() < 2 && at) disable($(id), "There is one latent only; points are spread upwards to be seen.");
  }
  for (const panel of Object.values(PANELS)) panel.build();
  place();
  restate();
  point.move(new Array(size()).fill(0));
}

const axisLabel = (j) => {
  const { axes, ratio } = space();
  return ratio && ratio.length === axes.length ? `${axes[j]} (${(100 * ratio[j]).toFixed(1)} %)` : axes[j];
};

/** Put the points on the plane of the two axes; with one latent they are spread to be seen. */
function place() {
  const [a, b] = state.axes;
  const q = size();
  const n = state.model.rows;
  const positions = new Float32Array(2 * n);
  for (let i = 0; i < n; i += 1) {
    positions[2 * i] = state.points[i * q + a];
    positions[2 * i + 1] = q > 1 ? state.points[i * q + b] : ((i * 0.618034) % 1) - 0.5;
  }
  const { low, high } = space();
  const up = q > 1 ? [low[b], high[b]] : [-1, 1];
  scatter.setPoints(positions, [[low[a], high[a]], up], [axisLabel(a), q > 1 ? axisLabel(b) : "(spread to be seen)"]);
  $("plot").setAttribute("aria-label", `Latent scatter of ${count(n)} rows: ${axisLabel(a)} across, ${q > 1 ? axisLabel(b) : "spread"} up`);
  marks(false);
}

function recolour() {
  scatter.setColours(paint(state.model.rows, column, codes));
  legend($("legend"), column, codes);
}

async function chooseColour(value) {
  $("colour").value = value;
  try {
    const next = value === "" ? null : state.model.columns[Number(value)];
    codes = next ? await getColours(Number(value)) : null;
    column = next;
    recolour();
  } catch (error) {
    toast(error.message);
  }
}

/** Which points are dim (not of this component, or not selected) and which stand out. */
function restate() {
  const n = state.model.rows;
  const bytes = new Uint8Array(n);
  const chosen = state.selection.length > 0;
  for (let i = 0; i < n; i += 1) bytes[i] = (groups && groups[i] !== state.component) || chosen ? 1 : 0;
  for (const i of state.selection) bytes[i] = 2;
  scatter.setStates(bytes);
}

function marks(reveal = true) {
  const [a, b] = state.axes;
  const flat = (z) => (z ? [z[a], size() > 1 ? z[b] : 0] : null);
  const here = flat(state.latent);
  scatter.marks.point = can("decode") ? here : null;
  scatter.marks.ends = state.ends.map(flat);
  scatter.marks.trail = state.ends[0] && state.ends[1] ? state.ends.map(flat) : null;
  scatter.marks.row = state.row;
  if (reveal && here) scatter.reveal(...here);
  scatter.redraw();
}

// --- the pointer ------------------------------------------------------------

function pick(x, y, row, dragging) {
  const z = [...state.latent];
  z[state.axes[0]] = x;
  if (size() > 1 && state.axes[0] !== state.axes[1]) z[state.axes[1]] = y;
  if (state.tab === "missing" && !dragging && state.model.rows) {
    row = row >= 0 ? row : closest(scatter.positions, x, y, ...scatter.unit, 1)[0];
    missing.choose(row);
  }
  if (row >= 0) point.moveToRow(row);
  else point.move(z, -1, false);
  if (state.tab === "path" && !dragging) path.click(state.latent);
}

function lasso(polygon) {
  if (!state.model.rows) return;
  const rows = inside(scatter.positions, polygon);
  select(rows);
  if (rows.length) openTab("selection");
  else toast("No rows lie inside that line.");
}

let naming = 0;

let hovered = -1;

function hover(row, px, py) {
  const tip = $("tip");
  tip.hidden = row < 0;
  hovered = row;
  if (row < 0) return;
  let words = nameOf(row);
  if (column && codes) {
    const code = codes[row];
    const value = column.kind === "category" ? column.levels[code] ?? "–" : short(code, 4);
    words += ` · ${column.name} ${value}`;
  }
  tip.textContent = words;
  const right = px > scatter.width - 200;
  tip.style.setProperty("left", `${right ? px - tip.offsetWidth - 12 : px + 14}px`);
  tip.style.setProperty("top", `${Math.max(4, py - 30)}px`);
  if (state.model.identified && !names.has(row)) {
    clearTimeout(naming);
    naming = setTimeout(async () => {
      await learnName(row);
      if (hovered === row && names.has(row)) hover(row, px, py);
    }, 120);
  }
}

async function learnName(row) {
  try {
    const found = await postJson("/api/rows", { rows: [row], component: state.component });
    names.set(row, found.ids[0]);
  } catch { /* a name is not worth a message */ }
}

// --- controls ---------------------------------------------------------------

for (const input of document.querySelectorAll('input[name="mode"]')) input.addEventListener("change", () => setMode(input.value));

function setMode(mode) {
  scatter.mode = mode;
  $("plot").dataset.mode = mode;
  document.querySelector(`input[name="mode"][value="${mode}"]`).checked = true;
  $("hint").textContent = {
    explore: "Click or drag to decode a point. Arrow keys move it, Shift makes larger steps, the wheel zooms.",
    lasso: "Draw around points to select their rows. Ctrl+Z takes a selection back.",
    pan: "Drag to move the view. The wheel zooms where the pointer is; 0 shows all rows.",
  }[mode];
}

for (const [id, at] of [["axis-x", 0], ["axis-y", 1]]) {
  $(id).addEventListener("change", () => {
    const next = Number($(id).value);
    if (state.axes[1 - at] === next) {
      state.axes[1 - at] = state.axes[at];
      $(at ? "axis-x" : "axis-y").value = String(state.axes[1 - at]);
    }
    state.axes[at] = next;
    place();
    point.showSliders();
  });
}
$("component").addEventListener("change", () => openComponent(Number($("component").value)));
$("colour").addEventListener("change", () => chooseColour($("colour").value));
$("zoom-in").addEventListener("click", () => scatter.zoomBy(1.5));
$("zoom-out").addEventListener("click", () => scatter.zoomBy(1 / 1.5));
$("zoom-reset").addEventListener("click", () => scatter.fit());

function openTab(name, focus = false) {
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

// --- the keyboard -----------------------------------------------------------

function step(axis, sign, large) {
  const { low, high } = space();
  const z = [...state.latent];
  z[axis] += sign * ((high[axis] - low[axis]) / (large ? 10 : 50) || 0.1);
  point.move(z, -1);
}

function nearestRow() {
  const { point: answer } = state;
  const [x, y] = [state.latent[state.axes[0]], size() > 1 ? state.latent[state.axes[1]] : 0];
  if (!state.model.rows) return -1;
  const [ux, uy] = scatter.unit;
  return closest(scatter.positions, x, y, ux, uy, 1)[0] ?? answer?.nearest ?? -1;
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
    const row = nearestRow();
    if (row < 0) return;
    if (state.tab === "missing") missing.choose(row);
    point.moveToRow(row);
  },
};

function selectNear() {
  if (!state.model.rows) return;
  const [x, y] = [state.latent[state.axes[0]], size() > 1 ? state.latent[state.axes[1]] : 0];
  select(closest(scatter.positions, x, y, ...scatter.unit, 50));
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
  const writing = event.target.matches?.("input[type=text], textarea");
  if ((event.ctrlKey || event.metaKey) && event.key.toLowerCase() === "z" && !writing) {
    event.preventDefault();
    undo();
  } else if (event.key === "Escape" && state.selection.length && !$("keys").open) select([]);
});

// --- what parts tell each other ----------------------------------------------

on("moved", (reveal) => marks(reveal));
on("ends", () => marks(false));
on("along", (z) => {
  scatter.marks.point = [z[state.axes[0]], size() > 1 ? z[state.axes[1]] : 0];
  scatter.redraw();
});
on("nearest", (row) => {
  scatter.marks.nearest = row;
  scatter.redraw();
});
on("decoded", () => {
  const { nearest } = state.point;
  scatter.marks.nearest = nearest ?? -1;
  scatter.redraw();
  if (state.model.identified && nearest !== null && !names.has(nearest)) {
    clearTimeout(naming);
    naming = setTimeout(async () => {
      await learnName(nearest);
      tell("named");
    }, 250);
  }
});
on("selection", restate);
on("selected-count", (n) => {
  const tab = $("tab-selection");
  tab.replaceChildren("Selection", ...(n ? [" ", el("span", { class: "badge" }, count(n))] : []));
});

// --- the server ---------------------------------------------------------------

let lost = false;

function banner(words, kind = "bad") {
  const box = $("banner");
  box.hidden = !words;
  box.dataset.kind = kind;
  box.textContent = words;
}

async function connected(now) {
  $("status").dataset.state = now === "ok" ? "ok" : "lost";
  $("status-text").textContent = { ok: "Connected", lost: "Not connected", locked: "Locked out" }[now];
  if (now === "lost") {
    lost = true;
    banner("The server does not answer. It may have been stopped; this page goes on as soon as it is back.");
  } else if (now === "locked") {
    banner("This page's key no longer fits: the server was started anew. Open the link that it printed in the terminal.");
  } else if (lost) {
    lost = false;
    await rejoin();
  } else banner("");
}

async function rejoin() {
  try {
    const fresh = await getModel();
    const same = ["model", "rows", "features", "shape", "size", "components"].every((key) => JSON.stringify(fresh[key]) === JSON.stringify(state.model[key]));
    if (!same) {
      location.reload();
      return;
    }
    state.model = fresh;
    banner("The server is back.", "good");
    setTimeout(() => { if (!lost) banner(""); }, 3000);
    point.refresh();
  } catch { /* the next poll tries again */ }
}

onConnection((now) => { connected(now); });
setInterval(async () => {
  if (document.hidden || !state.model) return;
  try {
    const { run } = await health();
    if (run !== state.model.run) {
      state.model.run = run;
      await rejoin();
    }
  } catch { /* the connection's own listener says so */ }
}, 4000);

window.dualpcaExplorer = { state, scatter: () => scatter, latentsOf };
start();
