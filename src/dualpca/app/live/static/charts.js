// Control charts: a statistic and its limit over rows, on a plain or a logarithmic scale.

import { ink, short } from "./dom.js";

export const LEFT = 46;
const RIGHT = 6;
const FAR = 300; // a logarithmic scale begins at the limit divided by this
const FONT = "11px system-ui, sans-serif";

/** Where a row lies across a chart. */
export const across = (width, n) => (i) => LEFT + (n < 2 ? 0.5 : i / (n - 1)) * (width - LEFT - RIGHT);

/** The row that lies at a place. */
export function rowAt(x, width, n) {
  const share = (x - LEFT) / (width - LEFT - RIGHT);
  return Math.min(n - 1, Math.max(0, Math.round(share * (n - 1))));
}

const known = (x) => x !== null && Number.isFinite(x);

function range(values, limits, log) {
  const own = limits.filter(known);
  const limit = own.length ? Math.max(...own.slice(-1), Number.MIN_VALUE) : 1;
  let high = limit;
  for (const x of values) if (known(x) && x > high) high = x;
  for (const x of own) if (x > high) high = x;
  return log ? [limit / FAR, high * 1.6] : [0, high * 1.12];
}

function marks(low, high, log) {
  const found = [];
  if (log) {
    for (let e = Math.ceil(Math.log10(low)); 10 ** e <= high; e += 1) found.push(10 ** e);
    return found.length > 4 ? found.filter((_, k) => k % 2 === found.length % 2) : found;
  }
  const raw = high / 3;
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find((k) => k * size >= raw);
  for (let y = 0; y <= high; y += step) found.push(y);
  return found;
}

/** Draw one chart: bands of episodes, grid, limit, line, what lies beyond, and the row pointed at. */
export function drawChart(drawing, width, height, chart, view) {
  const { values, limits } = chart;
  const n = values.length;
  const bottom = height - (chart.last ? 18 : 4);
  const [low, high] = range(values, limits, view.log);
  const scaled = view.log ? (y) => Math.log(Math.max(y, low) / low) / Math.log(high / low) : (y) => (y - low) / (high - low);
  const up = (y) => bottom - scaled(y) * (bottom - 4);
  const x = across(width, n);
  drawBands(drawing, view, x, bottom);
  drawGrid(drawing, marks(low, high, view.log), up, width, bottom);
  drawing.save();
  drawing.beginPath();
  drawing.rect(LEFT - 3, 0, width - LEFT + 3, bottom + 1);
  drawing.clip();
  line(drawing, limits, x, up, ink("--bad"), 1.25, [5, 4]);
  line(drawing, values, x, up, ink("--accent"), 1.5, []);
  drawing.fillStyle = ink("--bad");
  for (let i = 0; i < n; i += 1) {
    if (!known(values[i]) || !known(limits[i]) || values[i] <= limits[i]) continue;
    drawing.beginPath();
    drawing.arc(x(i), up(values[i]), n > 1500 ? 1.5 : 2.5, 0, 2 * Math.PI);
    drawing.fill();
  }
  drawing.restore();
  drawCursor(drawing, view.cursor, x, bottom);
  if (chart.last) drawTimes(drawing, view, x, width, height);
}

function drawBands(drawing, view, x, bottom) {
  const half = view.n > 1 ? (x(1) - x(0)) / 2 : 3;
  for (const { from, to, picked } of view.bands) {
    drawing.fillStyle = ink("--bad");
    drawing.globalAlpha = picked ? 0.22 : 0.12;
    const left = Math.max(LEFT, x(from) - half);
    drawing.fillRect(left, 0, Math.max(2, x(to) + half - left), bottom);
  }
  drawing.globalAlpha = 1;
}

function drawGrid(drawing, at, up, width, bottom) {
  drawing.font = FONT;
  drawing.textAlign = "right";
  for (const y of at) {
    const py = Math.round(up(y)) + 0.5;
    drawing.strokeStyle = ink("--line");
    drawing.globalAlpha = 0.7;
    drawing.lineWidth = 1;
    drawing.beginPath();
    drawing.moveTo(LEFT, py);
    drawing.lineTo(width, py);
    drawing.stroke();
    drawing.globalAlpha = 1;
    drawing.fillStyle = ink("--soft");
    if (py < bottom - 3) drawing.fillText(short(y, 3), LEFT - 6, Math.max(9, py + 4));
  }
}

/** Draw numbers as a line that is broken where they are missing. */
export function line(drawing, values, x, up, colour, width, dashes) {
  drawing.strokeStyle = colour;
  drawing.lineWidth = width;
  drawing.lineJoin = "round";
  drawing.setLineDash(dashes);
  drawing.beginPath();
  let on = false;
  values.forEach((value, i) => {
    if (!known(value)) {
      on = false;
      return;
    }
    if (on) drawing.lineTo(x(i), up(value));
    else drawing.moveTo(x(i), up(value));
    if (!on && !known(values[i + 1])) drawing.lineTo(x(i) + 0.5, up(value));
    on = true;
  });
  drawing.stroke();
  drawing.setLineDash([]);
}

function drawCursor(drawing, cursor, x, bottom) {
  if (cursor === null) return;
  drawing.strokeStyle = ink("--ink");
  drawing.globalAlpha = 0.6;
  drawing.lineWidth = 1;
  drawing.beginPath();
  drawing.moveTo(Math.round(x(cursor)) + 0.5, 0);
  drawing.lineTo(Math.round(x(cursor)) + 0.5, bottom);
  drawing.stroke();
  drawing.globalAlpha = 1;
}

function drawTimes(drawing, view, x, width, height) {
  drawing.font = FONT;
  drawing.fillStyle = ink("--soft");
  const about = Math.max(2, Math.floor((width - LEFT) / 120));
  const steps = Math.min(about, view.n - 1);
  for (let k = 0; k <= steps; k += 1) {
    const i = Math.round((k / Math.max(1, steps)) * (view.n - 1));
    drawing.textAlign = k === 0 ? "left" : k === steps ? "right" : "center";
    drawing.fillText(view.label(i), x(i), height - 4);
  }
}

/** Draw measured and expected values of one sensor. */
export function drawSensor(drawing, width, height, measured, expected) {
  const every = [...measured, ...expected].filter(known);
  if (!every.length) return;
  let [low, high] = [Math.min(...every), Math.max(...every)];
  const room = (high - low || Math.abs(high) || 1) * 0.08;
  [low, high] = [low - room, high + room];
  const up = (y) => height - 8 - ((y - low) / (high - low)) * (height - 16);
  const x = across(width, measured.length);
  drawing.clearRect(0, 0, width, height);
  drawGrid(drawing, [low + room, (low + high) / 2, high - room], up, width, height);
  line(drawing, expected, x, up, ink("--warm"), 1.75, [6, 4]);
  line(drawing, measured, x, up, ink("--accent"), 1.75, []);
}
