// Draw a row: as an image, as a curve or as bars, with its uncertainty.

import { context, el, ink, short } from "./dom.js";
import { isDark, ramp } from "./palette.js";

export const WIDTH95 = 1.96;

function extent(model) {
  const low = Math.min(...model.low);
  const high = Math.max(...model.high);
  return high > low ? [low, high] : [low, low + 1];
}

/** Paint numbers as an image; `colour` turns a share into red, green and blue. */
export function image(canvas, size, values, low, high, colour, hidden = null) {
  const [rows, columns, channels = 1] = size;
  canvas.width = columns;
  canvas.height = rows;
  const drawing = canvas.getContext("2d");
  const pixels = drawing.createImageData(columns, rows);
  const share = (x) => (x - low) / (high - low || 1);
  for (let i = 0; i < rows * columns; i += 1) {
    const at = i * channels;
    let found;
    if (channels === 3) found = [0, 1, 2].map((k) => 255 * share(values[at + k]));
    else found = colour(share(values[at]));
    const gone = values[at] === null || (hidden && hidden.has(at));
    pixels.data.set(gone ? [...hole(i, columns), 255] : [...found, 255], 4 * i);
  }
  drawing.putImageData(pixels, 0, 0);
}

const hole = (i, columns) => {
  const even = (Math.floor(i / columns) + (i % columns)) % 2;
  if (isDark()) return even ? [74, 52, 20] : [92, 66, 26];
  return even ? [253, 232, 200] : [248, 214, 165];
};

/** Ink on paper: dark for much on a light page, light for much on a dark one. */
export function grey(share) {
  const x = Math.min(Math.max(share, 0), 1);
  const [from, to] = isDark() ? [[24, 28, 36], [240, 243, 248]] : [[255, 255, 255], [22, 28, 42]];
  return from.map((a, k) => Math.round(a + x * (to[k] - a)));
}

function imageSize(size, box) {
  const zoom = Math.min(box / size[0], box / size[1]);
  return [Math.round(size[1] * zoom), Math.round(size[0] * zoom)];
}

function sized(canvas, width, height) {
  canvas.style.setProperty("width", `${width}px`);
  canvas.style.setProperty("height", `${height}px`);
  canvas.style.setProperty("image-rendering", "pixelated");
}

/** A small picture without words, for samples: returns its canvas. */
export function thumbnail(model, values) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  if (model.shape === "image") {
    const [low, high] = extent(model);
    image(canvas, model.size, values, low, high, grey);
    canvas.style.setProperty("image-rendering", "pixelated");
    canvas.style.setProperty("aspect-ratio", `${model.size[1]} / ${model.size[0]}`);
  } else if (model.shape === "curve") curve(canvas, model, { values }, 300, 56, false);
  else strip(canvas, model, values, 300, 34);
  return canvas;
}

/** Bars side by side, for small pictures of a few features. */
function strip(canvas, model, values, width, height) {
  const drawing = context(canvas, width, height);
  canvas.style.setProperty("height", `${height}px`);
  const n = values.length;
  const gap = n > 60 ? 0 : 2;
  const each = width / n;
  for (let j = 0; j < n; j += 1) {
    const share = within(values[j], model.low[j], model.high[j]);
    drawing.fillStyle = ink("--track");
    drawing.fillRect(j * each, 0, each - gap, height);
    if (values[j] === null) { // missing: a dash, which no value looks like
      drawing.fillStyle = ink("--warm");
      drawing.fillRect((j + 0.3) * each, height / 2 - 1, 0.4 * each - gap, 2);
      continue;
    }
    drawing.fillStyle = ink("--accent");
    drawing.fillRect(j * each, height * (1 - share), each - gap, height * share);
  }
}

const within = (x, low, high) => Math.min(1, Math.max(0, (x - low) / (high - low || 1)));

/** The row as figures, in `box`. `row` has values, and where known std, truth and hidden (a set). */
export function figures(box, model, row, options = {}) {
  if (model.shape === "image") {
    box.replaceChildren();
    imageFigures(box, model, row, options);
    return;
  }
  const { canvas, words } = wideFigure(box, model, options);
  const width = box.clientWidth || 380;
  if (model.shape === "curve") {
    words.textContent = caption(row, "The curve");
    curve(canvas, model, row, Math.max(240, width), 200, true);
  } else {
    words.textContent = caption(row, "From its mean to its value, on the range of the rows");
    bars(canvas, model, row, Math.max(240, width - 2));
  }
}

const wide = new WeakMap();

/** The one figure of a box: made once, since a drag fills it many times a second. */
function wideFigure(box, model, options) {
  const known = wide.get(box);
  if (known && known.figure.parentNode === box) return known;
  const curved = model.shape === "curve";
  const canvas = el("canvas", { role: "img", "aria-label": options.label || `The decoded ${curved ? "curve" : "features"}` });
  const inner = curved ? canvas : el("div", { class: "scroller", tabindex: "0", role: "region", "aria-label": "Features" }, canvas);
  const words = el("figcaption", {});
  const figure = el("figure", { class: "wide" }, inner, words);
  box.replaceChildren(figure);
  const made = { figure, canvas, words };
  wide.set(box, made);
  return made;
}

const caption = (row, words) => (row.std || row.low ? `${words}, with the range of 95 % of measurements` : words);

function imageFigures(box, model, row, options) {
  const [low, high] = extent(model);
  const half = Math.floor(((box.clientWidth || 372) - 12) / 2) - 2;
  const [width, height] = imageSize(model.size, Math.min(options.box || 184, half));
  const main = el("canvas", { role: "img", "aria-label": options.label || "The decoded image" });
  image(main, model.size, row.values, low, high, grey);
  sized(main, width, height);
  box.append(el("figure", { class: "framed" }, main, el("figcaption", {}, options.caption || "Decoded")));
  if (!row.std) return;
  const spread = row.hidden ? row.std.filter((_, j) => row.hidden.has(j)) : row.std;
  if (!spread.length) return;
  const [least, most] = [Math.min(...spread), Math.max(...spread)];
  const map = el("canvas", { role: "img", "aria-label": "Standard deviation of every pixel" });
  const size = model.size.length === 3 ? model.size.slice(0, 2) : model.size;
  const values = model.size.length === 3 ? size3(row.std) : row.std;
  const even = most - least < 1e-9 * most;
  image(map, size, values, even ? 0 : least, even ? 2 * most : most, ramp);
  sized(map, width, height);
  const words = even ? `Deviation ${short(most, 3)} everywhere` : `Deviation ${short(least, 3)} to ${short(most, 3)}`;
  box.append(el("figure", { class: "framed" }, map, el("figcaption", {}, words)));
}

const size3 = (std) => Array.from({ length: std.length / 3 }, (_, i) => Math.max(std[3 * i], std[3 * i + 1], std[3 * i + 2]));

function curve(canvas, model, row, width, height, framed) {
  const drawing = context(canvas, width, height);
  canvas.style.setProperty("height", `${height}px`);
  const [low, high] = extent(model);
  const [left, right, top, bottom] = framed ? [44, 8, 8, 22] : [2, 2, 2, 2];
  const n = row.values.length;
  const x = (j) => left + ((width - left - right) * j) / Math.max(1, n - 1);
  const y = (v) => top + (height - top - bottom) * (1 - (v - low) / (high - low));
  if (framed) {
    drawing.strokeStyle = ink("--line");
    drawing.fillStyle = ink("--soft");
    drawing.font = "11px system-ui, sans-serif";
    drawing.textAlign = "right";
    for (const share of [0, 0.5, 1]) {
      const v = low + share * (high - low);
      drawing.beginPath();
      drawing.moveTo(left, y(v));
      drawing.lineTo(width - right, y(v));
      drawing.stroke();
      drawing.fillText(short(v, 3), left - 6, y(v) + 4);
    }
    drawing.textAlign = "left";
    drawing.fillText(model.features[0], left, height - 6);
    drawing.textAlign = "right";
    drawing.fillText(model.features[n - 1], width - right, height - 6);
  }
  if (row.std) {
    drawing.fillStyle = ink("--accent");
    drawing.globalAlpha = 0.2;
    drawing.beginPath();
    for (let j = 0; j < n; j += 1) drawing.lineTo(x(j), y(row.values[j] + WIDTH95 * row.std[j]));
    for (let j = n - 1; j >= 0; j -= 1) drawing.lineTo(x(j), y(row.values[j] - WIDTH95 * row.std[j]));
    drawing.fill();
    drawing.globalAlpha = 1;
  }
  if (row.hidden) {
    drawing.fillStyle = ink("--warm");
    drawing.globalAlpha = 0.13;
    for (const j of row.hidden) drawing.fillRect(x(j - 0.5), top, x(j + 0.5) - x(j - 0.5), height - top - bottom);
    drawing.globalAlpha = 1;
  }
  const line = (values, colour, dashed) => {
    drawing.strokeStyle = colour;
    drawing.lineWidth = dashed ? 1.25 : 2;
    drawing.setLineDash(dashed ? [4, 3] : []);
    drawing.beginPath();
    let pen = false;
    values.forEach((v, j) => {
      if (v === null) pen = false;
      else if (pen) drawing.lineTo(x(j), y(v));
      else drawing.moveTo(x(j), y(v));
      if (v !== null) pen = true;
    });
    drawing.stroke();
    drawing.setLineDash([]);
  };
  if (row.truth) line(row.truth, ink("--warm"), true);
  line(row.values, ink("--accent"), false);
  canvas.entryAt = (px) => Math.min(n - 1, Math.max(0, Math.round(((px - left) / (width - left - right)) * (n - 1))));
}

const LINE = 24; // pixels of a feature
const WIDEST = 120; // pixels of a value

/** A value in words: a level where the feature has levels, else a number. */
export function said(model, j, value) {
  const levels = model.levels[j];
  if (value === null || !levels.length) return short(value, 4);
  return levels[Math.min(levels.length - 1, Math.max(0, Math.round(value)))];
}

function bars(canvas, model, row, width) {
  const n = row.values.length;
  const height = n * LINE + 6;
  const drawing = context(canvas, width, height);
  canvas.style.setProperty("height", `${height}px`);
  drawing.font = "12px system-ui, sans-serif";
  const longest = Math.max(...model.features.map((name) => drawing.measureText(name).width));
  const left = Math.min(130, longest + 18);
  const words = row.values.map((x, j) => drawing.measureText(said(model, j, x)).width);
  const right = 16 + Math.min(WIDEST, Math.max(40, ...words));
  for (let j = 0; j < n; j += 1) bar(drawing, model, row, j, left, width - left - right, width);
  canvas.entryAt = (_, py) => Math.min(n - 1, Math.max(0, Math.floor((py - 3) / LINE)));
}

function bar(drawing, model, row, j, left, room, width) {
  const middle = 3 + (j + 0.5) * LINE;
  const pad = 0.15 * (model.high[j] - model.low[j] || 1);
  const [low, high] = [model.low[j] - pad, model.high[j] + pad];
  const x = (v) => left + room * within(v, low, high);
  const gone = row.hidden && row.hidden.has(j);
  const value = row.values[j];
  if (gone) {
    drawing.fillStyle = ink("--warm");
    drawing.globalAlpha = 0.13;
    drawing.fillRect(0, middle - LINE / 2, width, LINE);
    drawing.globalAlpha = 1;
  }
  drawing.fillStyle = ink("--ink");
  drawing.textAlign = "left";
  drawing.textBaseline = "middle";
  drawing.fillText(clip(drawing, model.features[j], left - 16), 8, middle);
  if (model.levels[j].length) {
    cells(drawing, model, row, j, left, room, middle);
    drawing.fillStyle = ink("--ink");
    drawing.textAlign = "right";
    drawing.fillText(clip(drawing, said(model, j, value), WIDEST), width - 8, middle);
    return;
  }
  drawing.fillStyle = ink("--track");
  drawing.fillRect(left, middle - 3, room, 6);
  drawing.fillStyle = ink(gone ? "--warm" : "--accent");
  const [a, b] = [x(model.mean[j]), x(value)];
  drawing.fillRect(Math.min(a, b), middle - 5, Math.max(1, Math.abs(b - a)), 10);
  drawing.fillStyle = ink("--soft");
  drawing.fillRect(a - 0.5, middle - 7, 1, 14);
  const ends = ranges(row, j);
  if (ends) {
    drawing.strokeStyle = ink("--ink");
    drawing.lineWidth = 1.25;
    drawing.beginPath();
    const [from, to] = ends.map(x);
    drawing.moveTo(from, middle);
    drawing.lineTo(to, middle);
    for (const end of [from, to]) {
      drawing.moveTo(end, middle - 3.5);
      drawing.lineTo(end, middle + 3.5);
    }
    drawing.stroke();
  }
  if (gone && row.truth && row.truth[j] !== null) {
    drawing.beginPath();
    drawing.arc(x(row.truth[j]), middle, 4, 0, 2 * Math.PI);
    drawing.fillStyle = ink("--card");
    drawing.fill();
    drawing.strokeStyle = ink("--ink");
    drawing.lineWidth = 2;
    drawing.stroke();
  }
  drawing.fillStyle = ink("--ink");
  drawing.textAlign = "right";
  drawing.fillText(short(value, 4), width - 8, middle);
}

/** The ends of the range of 95 % of an entry, if there are any. */
function ranges(row, j) {
  if (row.low && row.hidden && row.hidden.has(j) && row.low[j] !== null) return [row.low[j], row.high[j]];
  return row.std && row.std[j] > 0 ? [row.values[j] - WIDTH95 * row.std[j], row.values[j] + WIDTH95 * row.std[j]] : null;
}

/** Levels side by side, the one that the row has filled, the true one of a hidden entry ringed. */
function cells(drawing, model, row, j, left, room, middle) {
  const n = model.levels[j].length;
  const gone = row.hidden && row.hidden.has(j);
  const each = room / n;
  for (let k = 0; k < n; k += 1) {
    const chosen = row.values[j] !== null && Math.round(row.values[j]) === k;
    drawing.fillStyle = ink(chosen ? (gone ? "--warm" : "--accent") : "--track");
    drawing.fillRect(left + k * each, middle - 5, Math.max(1, each - 2), 10);
    if (gone && row.truth && row.truth[j] === k) {
      drawing.strokeStyle = ink("--ink");
      drawing.lineWidth = 2;
      drawing.strokeRect(left + k * each + 1, middle - 6, Math.max(1, each - 4), 12);
    }
  }
}

function clip(drawing, text, room) {
  if (drawing.measureText(text).width <= room) return text;
  let cut = text;
  while (cut.length > 1 && drawing.measureText(`${cut}…`).width > room) cut = cut.slice(0, -1);
  return `${cut}…`;
}
