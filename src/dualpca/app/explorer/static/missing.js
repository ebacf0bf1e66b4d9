// Hide entries of a row and watch the model fill them, with intervals.

import { latest, postJson } from "./api.js";
import { $, el, short, toast } from "./dom.js";
import { WIDTH95, figures, grey, image } from "./rows.js";
import { can, nameOf, names, on, state, why } from "./store.js";

let row = -1;
let hidden = new Set();
let found = null;
let brush = null;

export function build() {
  const panel = $("panel-missing");
  row = -1;
  found = null;
  hidden = new Set();
  panel.replaceChildren();
  if (!can("impute") || !state.model.rows) {
    const words = can("impute") ? "There are no rows: no table was given on the command line." : why("impute");
    panel.append(el("p", { class: "blank" }, words));
    return;
  }
  panel.append(el("div", { class: "head" }, el("h2", { id: "missing-title" }, "No row chosen")), el("div", { id: "missing-body" }));
  show();
}

/** Choose the row to hide entries of. */
export function choose(next) {
  if (!can("impute") || next < 0) return;
  row = next;
  found = null;
  show();
  ask();
}

export const chosen = () => row;

const ask = latest(async () => {
  if (row < 0) return;
  const request = { row, hidden: [...hidden].sort((a, b) => a - b) };
  try {
    const answer = await postJson("/api/impute", request);
    if (request.row !== row) return;
    found = answer;
    names.set(row, answer.id);
    fill();
  } catch (error) {
    toast(error.message);
  }
});

function show() {
  const body = $("missing-body");
  if (!body) return;
  body.className = "panel-body";
  if (row < 0) {
    body.replaceChildren(el("p", { class: "blank" }, "Click a row in the plot while this is open. Then drag over its entries to hide them."));
    return;
  }
  const d = state.model.features.length;
  const hide = (test) => () => {
    hidden = new Set(Array.from({ length: d }, (_, j) => j).filter(test));
    ask();
  };
  const tops = state.model.shape === "image" ? "Upper half" : "First half";
  const lows = state.model.shape === "image" ? "Lower half" : "Second half";
  body.replaceChildren(
    el("div", { class: "buttons", role: "group", "aria-label": "Hide entries" },
      el("button", { type: "button", id: "hide-first", onclick: hide((j) => j < d / 2) }, tops),
      el("button", { type: "button", id: "hide-second", onclick: hide((j) => j >= d / 2) }, lows),
      el("button", { type: "button", id: "hide-some", onclick: hide(() => Math.random() < 0.4) }, "Random"),
      el("button", { type: "button", id: "hide-none", class: "quiet", onclick: hide(() => false) }, "Show all")),
    el("p", { class: "note" }, state.model.shape === "image" ? "Drag over the first picture to hide pixels; drag over hidden ones to show them." : "Click or drag over entries to hide or show them."),
    el("div", { class: "row-figures", id: "observed" }),
    el("div", { class: "row-figures", id: "filled" }),
    el("dl", { class: "facts", id: "missing-facts" }),
    picker());
}

/** Check boxes for the keyboard, where entries are few enough to list. */
function picker() {
  const d = state.model.features.length;
  if (d > 64 || state.model.shape === "image") return el("span", { hidden: true });
  const boxes = state.model.features.map((name, j) => {
    const input = el("input", { type: "checkbox", id: `hide-${j}` });
    input.addEventListener("change", () => {
      if (input.checked) hidden.add(j);
      else hidden.delete(j);
      ask();
    });
    return el("label", { class: "field", for: `hide-${j}` }, input, el("span", {}, name));
  });
  return el("details", {}, el("summary", {}, "Choose entries by name"), el("div", { class: "buttons" }, ...boxes));
}

function fill() {
  if (!found || !$("observed")) return;
  $("missing-title").textContent = nameOf(row);
  const { model } = state;
  const all = new Set([...hidden, ...found.truth.map((x, j) => (x === null ? j : -1)).filter((j) => j >= 0)]);
  if (model.shape === "image") {
    const canvas = el("canvas", { id: "brush", role: "img", "aria-label": "The row with hidden pixels" });
    image(canvas, model.size, found.truth, Math.min(...model.low), Math.max(...model.high), grey, all);
    const room = Math.min(180, Math.floor(($("missing-body").clientWidth - 12) / 2) - 2);
    const zoom = Math.min(room / model.size[0], room / model.size[1]);
    canvas.style.setProperty("width", `${model.size[1] * zoom}px`);
    canvas.style.setProperty("height", `${model.size[0] * zoom}px`);
    canvas.style.setProperty("image-rendering", "pixelated");
    canvas.style.setProperty("cursor", "cell");
    canvas.style.setProperty("touch-action", "none");
    const truth = el("canvas", { role: "img", "aria-label": "The whole row" });
    image(truth, model.size, found.truth, Math.min(...model.low), Math.max(...model.high), grey);
    truth.style.cssText = canvas.style.cssText;
    truth.style.removeProperty("cursor");
    $("observed").replaceChildren(el("figure", { class: "framed" }, canvas, el("figcaption", {}, "What the model sees")), el("figure", { class: "framed" }, truth, el("figcaption", {}, "True values")));
    figures($("filled"), model, { values: found.values, std: found.std, hidden: all }, { box: 180, caption: "Filled in", label: "The row with hidden pixels filled in" });
  } else {
    $("observed").replaceChildren();
    figures($("filled"), model, { ...found, hidden: all }, { label: "The row with hidden entries filled in" });
  }
  listen();
  facts(all);
  for (let j = 0; j < model.features.length; j += 1) {
    const box = $(`hide-${j}`);
    if (box) box.checked = hidden.has(j);
  }
}

function facts(all) {
  const known = [...all].filter((j) => found.truth[j] !== null);
  const words = known.filter((j) => state.model.levels[j].length); // levels: right or wrong
  const numbers = known.filter((j) => !state.model.levels[j].length);
  const inside = numbers.filter(within).length;
  const right = words.filter((j) => found.truth[j] === found.values[j]).length;
  const { spread } = state.model;
  const gap = Math.sqrt(numbers.reduce((sum, j) => sum + ((found.truth[j] - found.values[j]) / spread[j]) ** 2, 0) / (numbers.length || 1));
  const box = $("missing-facts");
  const add = (id, name, value, title) => box.append(el("div", { title }, el("dt", {}, name), el("dd", { id }, value)));
  box.replaceChildren();
  box.classList.toggle("even", words.length > 0);
  add("fact-hidden", "Hidden", `${all.size} of ${state.model.features.length}`);
  add("fact-inside", "Within 95 %", numbers.length ? `${inside} of ${numbers.length}` : "–", "Hidden entries that lie in their interval");
  if (words.length) add("fact-right", "Levels right", `${right} of ${words.length}`, "Hidden levels that were filled in as they are");
  add("fact-gap", "Mean error", numbers.length ? `${short(gap, 2)} sd` : "–", "Root mean squared difference over hidden entries, each in the standard deviation of its column");
}

const within = (j) => (found.std
  ? Math.abs(found.truth[j] - found.values[j]) <= WIDTH95 * found.std[j]
  : found.low[j] <= found.truth[j] && found.truth[j] <= found.high[j]);

function entryAt(canvas, event) {
  const frame = canvas.getBoundingClientRect();
  const [px, py] = [event.clientX - frame.left, event.clientY - frame.top];
  const { model } = state;
  if (model.shape !== "image") return canvas.entryAt ? canvas.entryAt(px, py) : -1;
  const [rows, columns, channels = 1] = model.size;
  const r = Math.floor((py / frame.height) * rows);
  const c = Math.floor((px / frame.width) * columns);
  if (r < 0 || c < 0 || r >= rows || c >= columns) return -1;
  return (r * columns + c) * channels;
}

function listen() {
  const canvas = state.model.shape === "image" ? $("brush") : $("filled").querySelector("canvas");
  if (!canvas || canvas.listening) return;
  canvas.listening = true;
  canvas.addEventListener("pointerdown", (event) => {
    const j = entryAt(canvas, event);
    if (j < 0) return;
    event.preventDefault();
    brush = { hide: !hidden.has(j) };
    touch(j);
  });
  canvas.addEventListener("pointermove", (event) => {
    if (brush && event.buttons) touch(entryAt(canvas, event));
  });
}

window.addEventListener("pointerup", () => { brush = null; });

function touch(j) {
  if (j < 0) return;
  const channels = state.model.size[2] || 1;
  for (let k = j; k < j + channels; k += 1) {
    if (brush.hide) hidden.add(k);
    else hidden.delete(k);
  }
  ask();
}

on("theme", fill);
on("named", fill);
