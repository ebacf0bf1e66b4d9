// Rows over time: scores, T² or SPE, and a period that selects rows.
// Points are pixels of one buffer; a drag paints only the layer above it.

import { getColours, getTimes } from "./api.js";
import { moment, momentTicks } from "./clock.js";
import { $, context, count, el, fixed, ink, short, toast } from "./dom.js";
import { ring } from "./marks.js";
import { colourOf, isHidden } from "./plane.js";
import { moveToRow } from "./point.js";
import { nameOf, on, select, size, space, state } from "./store.js";
import { openTab } from "./tabs.js";

const MARGIN = { left: 54, right: 14, top: 8, bottom: 20 };
const TOP = 3; // multiples of its limit up to which a distance is drawn; beyond, at the edge
let order = null; // rows with a time, in its order
let sorted = null; // their times
let values = new Float32Array(0);
let limit = null;
let range = [0, 1];
let span = [0, 1];
let period = null;
let dragging = null;
let asked = 0;
let stale = true;
const layer = document.createElement("canvas"); // of rows, before they lie on the grid

/** Learn the times of rows, and what can be drawn over them. */
export async function build() {
  const { model } = state;
  $("timeline").hidden = !model.time || !model.rows;
  if ($("timeline").hidden) return;
  try {
    state.times ??= await getTimes();
  } catch (error) {
    $("timeline").hidden = true;
    toast(error.message);
    return;
  }
  order = Uint32Array.from(Array.from(state.times.keys()).filter((i) => Number.isFinite(state.times[i])));
  order.sort((a, b) => state.times[a] - state.times[b] || a - b);
  sorted = Float64Array.from(order, (i) => state.times[i]);
  span = [sorted[0], sorted[sorted.length - 1]];
  if (span[1] <= span[0]) span = [span[0] - 1, span[0] + 1];
  $("timeline-title").title = `Column ${model.time.name}`;
  const pick = $("timeline-of");
  const distances = model.columns.map((one, k) => [one, k]).filter(([one]) => one.limit !== null);
  pick.replaceChildren(
    ...distances.map(([one, k]) => el("option", { value: `column ${k}` }, one.name)),
    ...space().axes.map((name, k) => el("option", { value: `latent ${k}` }, name)));
  const spe = distances.findIndex(([one]) => one.name.startsWith("SPE"));
  pick.selectedIndex = Math.max(0, spe);
  await choose();
}

async function choose() {
  const [what, k] = $("timeline-of").value.split(" ");
  const at = Number(k);
  limit = null;
  try {
    if (what === "column") {
      values = await getColours(at);
      limit = state.model.columns[at].limit;
    } else {
      const q = size();
      values = Float32Array.from({ length: state.model.rows }, (_, i) => state.points[i * q + at]);
    }
  } catch (error) {
    toast(error.message);
    return;
  }
  const [low, high] = bounds();
  range = limit === null ? [low - 0.05 * (high - low || 1), high + 0.05 * (high - low || 1)] : [0, Math.max(1.15 * limit, Math.min(1.05 * high, TOP * limit))];
  const name = $("timeline-of").selectedOptions[0].textContent;
  $("timeline-plot").setAttribute("aria-label", `${name} of ${count(order.length)} rows over ${state.model.time.name}. Arrow keys move a period, with Shift they change its length, Enter selects its rows.`);
  redraw();
}

function bounds() {
  let [low, high] = [Infinity, -Infinity];
  for (const i of order) {
    const v = values[i];
    if (v < low) low = v;
    if (v > high) high = v;
  }
  return low <= high ? [low, high] : [0, 1];
}

// --- drawing ------------------------------------------------------------------

let seen = [0, 0]; // width and height, measured when they change
const box = () => seen;
const toX = (t) => MARGIN.left + ((t - span[0]) / (span[1] - span[0])) * (box()[0] - MARGIN.left - MARGIN.right);
const toTime = (px) => {
  const share = (px - MARGIN.left) / (box()[0] - MARGIN.left - MARGIN.right);
  return span[0] + Math.min(1, Math.max(0, share)) * (span[1] - span[0]);
};
const toY = (v) => {
  const share = (Math.min(v, range[1]) - range[0]) / (range[1] - range[0]);
  return MARGIN.top + (1 - share) * (box()[1] - MARGIN.top - MARGIN.bottom);
};

function redraw(all = true) {
  stale ||= all;
  if (asked || !order) return;
  asked = requestAnimationFrame(() => {
    asked = 0;
    const [width, height] = box();
    if (!width || !height) return;
    if (stale) drawRows(width, height);
    stale = false;
    drawAbove(width, height);
  });
}

function drawRows(width, height) {
  const drawing = context($("timeline-rows"), width, height);
  const bottom = height - MARGIN.bottom;
  drawing.font = "11px system-ui, sans-serif";
  drawing.strokeStyle = ink("--line");
  drawing.fillStyle = ink("--soft");
  drawing.textAlign = "center";
  for (const [t, words] of momentTicks(...span, width / 110, state.model.time.kind)) {
    const px = Math.round(toX(t)) + 0.5;
    drawing.beginPath();
    drawing.moveTo(px, MARGIN.top);
    drawing.lineTo(px, bottom);
    drawing.stroke();
    drawing.fillText(words, Math.min(px, width - MARGIN.right - 14), bottom + 14);
  }
  drawing.textAlign = "right";
  for (const v of limit === null ? [range[0], (range[0] + range[1]) / 2, range[1]] : [0, limit, range[1]]) {
    drawing.fillText(fixed(v, (range[1] - range[0]) / 2), MARGIN.left - 7, Math.max(MARGIN.top + 8, toY(v) + 4));
  }
  paintRows(drawing, width, height);
  if (limit !== null) {
    drawing.strokeStyle = ink("--ink");
    drawing.setLineDash([5, 4]);
    drawing.beginPath();
    drawing.moveTo(MARGIN.left, toY(limit));
    drawing.lineTo(width - MARGIN.right, toY(limit));
    drawing.stroke();
    drawing.setLineDash([]);
  }
}

/** Write every row as a small square into one buffer of pixels: fast, however many there are. */
function paintRows(drawing, width, height) {
  const ratio = drawing.canvas.width / width;
  const [columns, rows] = [drawing.canvas.width, drawing.canvas.height];
  const picture = drawing.createImageData(columns, rows);
  const pixels = new Uint32Array(picture.data.buffer);
  const side = Math.max(2, Math.round((order.length > 5000 ? 1.6 : order.length > 1500 ? 2.4 : 3.4) * ratio));
  const chosen = new Set(state.selection);
  const [kx, ky] = [(width - MARGIN.left - MARGIN.right) / (span[1] - span[0]), (height - MARGIN.top - MARGIN.bottom) / (range[1] - range[0])];
  const stain = (i, alpha) => {
    const v = values[i];
    if (!Number.isFinite(v)) return;
    const left = Math.round((MARGIN.left + (state.times[i] - span[0]) * kx) * ratio - side / 2);
    const top = Math.round((MARGIN.top + (range[1] - Math.min(v, range[1])) * ky) * ratio - side / 2);
    const [r, g, b] = colourOf(i);
    const word = ((alpha << 24) | (b << 16) | (g << 8) | r) >>> 0;
    for (let y = Math.max(0, top); y < Math.min(rows, top + side); y += 1) {
      pixels.fill(word, y * columns + Math.max(0, left), y * columns + Math.min(columns, left + side));
    }
  };
  for (const i of order) if (!isHidden(i) && chosen.size && !chosen.has(i)) stain(i, 60);
  for (const i of order) if (!isHidden(i) && (!chosen.size || chosen.has(i))) stain(i, 230);
  [layer.width, layer.height] = [columns, rows];
  layer.getContext("2d").putImageData(picture, 0, 0);
  drawing.drawImage(layer, 0, 0, width, height);
}

function drawAbove(width, height) {
  const drawing = context($("timeline-above"), width, height);
  if (period) {
    const [a, b] = period.map(toX);
    drawing.fillStyle = ink("--accent");
    drawing.globalAlpha = 0.16;
    drawing.fillRect(a, MARGIN.top, Math.max(1, b - a), height - MARGIN.top - MARGIN.bottom);
    drawing.globalAlpha = 1;
    drawing.fillRect(a - 1, MARGIN.top, 2, height - MARGIN.top - MARGIN.bottom);
    drawing.fillRect(b - 1, MARGIN.top, 2, height - MARGIN.top - MARGIN.bottom);
  }
  if (state.row >= 0 && Number.isFinite(state.times[state.row]) && Number.isFinite(values[state.row])) {
    ring(drawing, [toX(state.times[state.row]), toY(values[state.row])], "--ink", 6);
  }
}

// --- a period -------------------------------------------------------------------

/** The places in `order` of the first time that is at least t, and of the first beyond it. */
function from(t, beyond) {
  let [low, high] = [0, sorted.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] < t || (beyond && sorted[middle] === t)) low = middle + 1;
    else high = middle;
  }
  return low;
}

const rowsWithin = ([a, b]) => Array.from(order.subarray(from(a, false), from(b, true))).filter((i) => !isHidden(i)).sort((i, j) => i - j);

/** Say which period it is: by its first and last row. */
function tellPeriod() {
  const { kind } = state.model.time;
  let words = "Drag over a period to select its rows.";
  if (period) {
    const [a, b] = [from(period[0], false), from(period[1], true) - 1];
    words = b < a ? "No rows in this period" : `${moment(sorted[a], kind)} to ${moment(sorted[b], kind)}`;
  }
  $("timeline-period").textContent = words;
}

function selectPeriod() {
  if (!period) return;
  const kept = period;
  const rows = rowsWithin(period);
  if (!rows.length) {
    toast("No rows lie in that period.");
    return;
  }
  select(rows);
  period = kept;
  tellPeriod();
  redraw(false);
  openTab("selection");
  $("live").textContent = `${count(rows.length)} rows from ${$("timeline-period").textContent} selected`;
}

/** The row whose dot is closest to a place, within a few pixels; −1 if none. */
function rowAt(px, py) {
  const reach = 9;
  let [best, found] = [reach * reach, -1];
  for (let k = from(toTime(px - reach), false); k < from(toTime(px + reach), true); k += 1) {
    const i = order[k];
    const far = (toX(sorted[k]) - px) ** 2 + (toY(values[i]) - py) ** 2;
    if (far < best && !isHidden(i)) [best, found] = [far, i];
  }
  return found;
}

const plot = $("timeline-plot");
const at = (event) => {
  const frame = dragging?.frame ?? plot.getBoundingClientRect(); // no layout while dragging
  return [event.clientX - frame.left, event.clientY - frame.top];
};

plot.addEventListener("pointerdown", (event) => {
  if (event.button || !order) return;
  plot.setPointerCapture(event.pointerId);
  const [px] = at(event);
  dragging = { start: px, moved: false, frame: plot.getBoundingClientRect() };
});
plot.addEventListener("pointermove", (event) => {
  if (!order) return;
  const [px, py] = at(event);
  if (!dragging) {
    hover(px, py);
    return;
  }
  if (!dragging.moved && Math.abs(px - dragging.start) < 4) return;
  dragging.moved = true;
  const ends = [toTime(dragging.start), toTime(px)];
  period = ends[0] <= ends[1] ? ends : [ends[1], ends[0]];
  tellPeriod();
  redraw(false);
});
plot.addEventListener("pointerup", (event) => {
  if (!dragging) return;
  const { moved } = dragging;
  dragging = null;
  if (moved) {
    selectPeriod();
    return;
  }
  const row = rowAt(...at(event));
  period = null;
  tellPeriod();
  if (row >= 0) {
    moveToRow(row);
    openTab("point");
  }
  redraw(false);
});
plot.addEventListener("pointercancel", () => { dragging = null; });
plot.addEventListener("pointerleave", tellPeriod0);

function tellPeriod0() {
  if (state.model?.time) tellPeriod();
}

function hover(px, py) {
  const row = rowAt(px, py);
  if (row < 0) tellPeriod();
  else $("timeline-period").textContent = `${moment(state.times[row], state.model.time.kind)} · ${nameOf(row)} · ${short(values[row], 4)}`;
}

plot.addEventListener("keydown", (event) => {
  if (!order || event.ctrlKey || event.metaKey || event.altKey) return;
  const sign = { ArrowLeft: -1, ArrowRight: 1 }[event.key];
  if (event.key === "Escape" && period && !state.selection.length) {
    period = null;
    tellPeriod();
    redraw(false);
  } else if (event.key === "Enter") selectPeriod();
  else if (sign) {
    const whole = span[1] - span[0];
    period ??= [span[0], span[0] + whole / 20];
    const length = period[1] - period[0];
    if (event.shiftKey) period = [period[0], Math.min(span[1], Math.max(period[0] + whole / 400, period[1] + (sign * whole) / 50))];
    else {
      const start = Math.min(span[1] - length, Math.max(span[0], period[0] + (sign * whole) / 50));
      period = [start, start + length];
    }
    tellPeriod();
    $("live").textContent = `${$("timeline-period").textContent}, ${count(rowsWithin(period).length)} rows`;
    redraw(false);
  } else return;
  event.preventDefault();
});

$("timeline-of").addEventListener("change", choose);
new ResizeObserver(() => {
  seen = [plot.clientWidth, plot.clientHeight];
  redraw();
}).observe(plot);
on("selection", () => {
  period = null;
  if (state.model?.time) tellPeriod();
  redraw();
});
on("painted", () => redraw());
on("theme", () => redraw());
on("moved", () => redraw(false));

/** For tests: the period under the brush, and what is drawn. */
export const shown = () => ({ period, range, limit, rows: order ? order.length : 0 });
