// Rows on the plane of two latents: where they lie, their colours, and what the pointer does to them.

import { getColours, getTimes, postJson } from "./api.js";
import { moment } from "./clock.js";
import { $, count, short, toast } from "./dom.js";
import { closest, inside } from "./grid.js";
import * as missing from "./missing.js";
import { codeOf, legend, paint } from "./palette.js";
import * as path from "./path.js";
import * as point from "./point.js";
import { Scatter } from "./scatter.js";
import { lookInside, showTree, within } from "./tree.js";
import { can, nameOf, names, on, select, size, space, state, tell } from "./store.js";
import { openTab } from "./tabs.js";

export const scatter = new Scatter($("plot"), [$("grid"), $("points"), $("overlay")], { pick, lasso, hover, open });
let column = null;
let codes = null;
let colours = new Uint8Array(0);
let groups = null;
let hovered = -1;

export const axisLabel = (j) => {
  const { axes, ratio } = space();
  return ratio && ratio.length === axes.length ? `${axes[j]} (${(100 * ratio[j]).toFixed(1)} %)` : axes[j];
};

/** Put the points on the plane of the two axes; with one latent they are spread to be seen. */
export function place() {
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
  colours = paint(state.model.rows, column, codes);
  scatter.setColours(colours);
  showLegend();
  tell("painted");
}

const showLegend = () => legend($("legend"), column, codes, state.hidden, toggle);

/** Hide the rows of a level, or show them again. */
function toggle(code) {
  if (!state.hidden.delete(code)) state.hidden.add(code);
  restate();
  showLegend();
  tell("painted");
}

/** The colour of a row, and whether its level is hidden. */
export const colourOf = (i) => colours.subarray(4 * i, 4 * i + 3);
export const isHidden = (i) => scatter.states[i] === 3;
export const painted = () => ({ colours, states: scatter.states });
export const shownColumn = () => [column, codes];

let wanted = []; // the model and column asked for last: answers may come in another order

export async function chooseColour(value) {
  $("colour").value = value;
  if (wanted[0] !== state.model || wanted[1] !== value) state.hidden.clear();
  const asked = (wanted = [state.model, value]);
  try {
    const next = value === "" ? null : state.model.columns[Number(value)];
    const found = next ? await getColours(Number(value)) : null;
    const start = next && next.kind === "time" ? await firstTime() : null;
    if (wanted !== asked) return;
    codes = found;
    column = start === null ? next : { ...next, when: { kind: state.model.time.kind, start } };
    restate();
    recolour();
  } catch (error) {
    toast(error.message);
  }
}

async function firstTime() {
  state.times ??= await getTimes();
  let first = Infinity;
  for (const t of state.times) if (t < first) first = t;
  return first;
}

/** Learn which component each row belongs to, if there are several. */
export async function learnGroups() {
  const { components, columns, rows } = state.model;
  if (components.length > 1 && !groups && rows) groups = await getColours(columns.findIndex((one) => one.origin === "model" && one.kind === "category"));
  showTree(groups);
}

/** Which points are dim (not of this component, or not selected) and which stand out. */
export function restate() {
  const n = state.model.rows;
  const bytes = new Uint8Array(n);
  const chosen = state.selection.length > 0;
  for (let i = 0; i < n; i += 1) bytes[i] = (groups && !within(groups[i], state.component)) || chosen ? 1 : 0;
  for (const i of state.selection) bytes[i] = 2;
  if (state.hidden.size) for (let i = 0; i < n; i += 1) if (state.hidden.has(codeOf(column, codes[i]))) bytes[i] = 3;
  scatter.setStates(bytes);
}

/** Where latents lie on the plane of the two axes. */
const flat = (z) => (z ? [z[state.axes[0]], size() > 1 ? z[state.axes[1]] : 0] : null);

function marks(reveal = true) {
  const here = flat(state.latent);
  scatter.marks.point = can("decode") ? here : null;
  scatter.marks.ends = state.ends.map(flat);
  scatter.marks.trail = state.ends[0] && state.ends[1] ? scatter.marks.ends : null;
  scatter.marks.row = state.row;
  if (reveal && here) scatter.reveal(...here);
  scatter.redraw(false);
}

/** The rows closest to a place of the plane, by default to the latent point. */
export const nearby = (k, [x, y] = flat(state.latent)) => closest(scatter.positions, x, y, ...scatter.unit, k, scatter.states);

// --- the pointer ------------------------------------------------------------

function pick(x, y, row, dragging) {
  const z = [...state.latent];
  z[state.axes[0]] = x;
  if (size() > 1 && state.axes[0] !== state.axes[1]) z[state.axes[1]] = y;
  if (state.tab === "missing" && !dragging && state.model.rows) {
    row = row >= 0 ? row : nearby(1, [x, y])[0];
    missing.choose(row);
  }
  if (row >= 0) point.moveToRow(row);
  else point.move(z, -1, false);
  if (state.tab === "path" && !dragging) path.click(state.latent);
}

function open(row) {
  if (groups && row >= 0) lookInside(groups[row]);
}

function lasso(polygon) {
  if (!state.model.rows) return;
  const rows = inside(scatter.positions, polygon, scatter.states);
  select(rows);
  if (rows.length) openTab("selection");
  else toast("No rows lie inside that line.");
}

function hover(row, px, py) {
  const tip = $("tip");
  tip.hidden = row < 0;
  hovered = row;
  if (row < 0) return;
  let words = nameOf(row);
  if (column && codes) {
    const code = codes[row];
    const value = column.kind === "category" ? column.levels[code] ?? "–" : column.kind === "time" ? moment(column.when.start + code, column.when.kind) : short(code, 4);
    words += ` · ${column.name} ${value}`;
  }
  tip.textContent = words;
  const right = px > scatter.width - 200;
  tip.style.setProperty("left", `${right ? px - tip.offsetWidth - 12 : px + 14}px`);
  tip.style.setProperty("top", `${Math.max(4, py - 30)}px`);
  learnName(row, 120, () => {
    if (hovered === row && names.has(row)) hover(row, px, py);
  });
}

let naming = 0;

/** Ask what a row is called, once the pointer or the point has rested on it. */
function learnName(row, wait, then) {
  if (!state.model.identified || names.has(row)) return;
  clearTimeout(naming);
  naming = setTimeout(async () => {
    try {
      const found = await postJson("/api/rows", { rows: [row], component: state.component });
      names.set(row, found.ids[0]);
    } catch { /* a name is not worth a message */ }
    then();
  }, wait);
}

on("theme", recolour);
on("selection", restate);
on("moved", marks);
on("ends", () => marks(false));
on("along", (z) => {
  scatter.marks.point = flat(z);
  scatter.redraw(false);
});
on("nearest", (row) => {
  scatter.marks.nearest = row;
  scatter.redraw(false);
});
on("decoded", () => {
  const { nearest } = state.point;
  scatter.marks.nearest = nearest ?? -1;
  scatter.redraw(false);
  if (nearest !== null) learnName(nearest, 250, () => tell("named"));
});
