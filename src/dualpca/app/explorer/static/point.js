// The decoded point: what it looks like, its uncertainty and how usual it is, and a slider for each latent.

import { latest, postJson } from "./api.js";
import * as beside from "./beside.js";
import { $, el, fixed, short, toast } from "./dom.js";
import { figures } from "./rows.js";
import { can, latentsOf, nameOf, names, on, size, space, state, tell, why } from "./store.js";

let sliders = [];

export function build() {
  const panel = $("panel-point");
  panel.replaceChildren();
  if (can("decode")) panel.append(el("div", { id: "decoded", class: "row-figures" }), facts());
  else panel.append(el("p", { class: "blank" }, why("decode"), " Points can still be coloured, selected and exported."));
  panel.append(beside.build());
  if (can("decode") && !can("spread")) panel.append(el("p", { class: "note" }, why("spread")));
  if (state.model.ways.length) panel.append(way());
  panel.append(el("div", { class: "head" }, el("h2", {}, "Latents"), el("div", { class: "buttons" },
    el("button", { type: "button", id: "to-centre", onclick: () => move(new Array(size()).fill(0)) }, "To the centre"))));
  panel.append(buildSliders());
}

function facts() {
  const words = { rows: "Log density", features: "Log density in feature space", latents: "Log density of latents", relative: "Log likelihood ratio" };
  const box = el("dl", { class: "facts" });
  const add = (id, name, title) => box.append(el("div", { title }, el("dt", {}, name), el("dd", { id }, "–")));
  add("fact-density", can("density") ? words[state.model.density] : "Log density", can("density") ? densityTitle() : why("density"));
  add("fact-farther", "Rows farther out", "Share of rows that lie farther from the centre");
  add("fact-nearest", "Closest row", "By the differences of its columns, each in its own standard deviation; missing entries count as the model fills them");
  return box;
}

const densityTitle = () => (state.model.density === "relative"
  ? "Of the decoded point itself: how much likelier it is than if columns were independent"
  : "Of the decoded point itself");

function way() {
  const select = el("select", { id: "way" });
  for (const name of state.model.ways) select.append(el("option", { value: name }, name));
  select.value = state.way || state.model.ways[0];
  select.addEventListener("change", () => {
    state.way = select.value;
    refresh();
  });
  return el("label", { class: "field" }, el("span", {}, "Pre-image"), select);
}

function buildSliders() {
  const { axes, low, high, ratio } = space();
  sliders = axes.map((name, k) => {
    const [from, to] = [Math.min(low[k], 0), Math.max(high[k], 0)];
    const margin = 0.1 * (to - from || 2);
    const id = `slider-${k}`;
    const share = ratio && ratio.length === axes.length ? ` ${(100 * ratio[k]).toFixed(1)} %` : "";
    const input = el("input", { type: "range", id, min: String(from - margin), max: String(to + margin), step: "any", value: "0" });
    const output = el("output", { for: id }, "0");
    input.addEventListener("input", () => {
      const z = [...state.latent];
      z[k] = Number(input.value);
      move(z, -1, false);
    });
    const step = (to - from || 2) / 100;
    input.addEventListener("keydown", (event) => {
      const sign = { ArrowLeft: -1, ArrowDown: -1, ArrowRight: 1, ArrowUp: 1 }[event.key];
      if (!sign) return;
      event.preventDefault();
      const z = [...state.latent];
      z[k] += sign * step * (event.shiftKey ? 10 : 1);
      move(z, -1, false);
    });
    const label = el("label", { for: id }, name, el("small", { title: "Share of the variance" }, share));
    return { row: el("div", { class: "slider" }, label, input, output), input, output, step };
  });
  return el("div", { class: "sliders" }, ...sliders.map((one) => one.row));
}

export function showSliders() {
  sliders.forEach(({ row, input, output, step }, k) => {
    if (document.activeElement !== input || Number(input.value) !== state.latent[k]) input.value = String(state.latent[k]);
    output.textContent = fixed(state.latent[k], step * 10);
    input.setAttribute("aria-valuetext", output.textContent);
    row.classList.toggle("shown", state.axes.includes(k));
  });
}

/** Move the latent point; decode it as soon as the server has answered what was asked before. */
export function move(latent, row = -1, reveal = true) {
  const { limit } = state.model;
  state.latent = latent.map((z) => Math.min(limit, Math.max(-limit, z)));
  state.row = row;
  showSliders();
  tell("moved", reveal);
  refresh();
}

export const moveToRow = (row) => move(latentsOf(row), row);

const decode = latest(async () => {
  const latent = [...state.latent];
  try {
    const answer = await postJson("/api/decode", { latent, component: state.component, way: state.way });
    if (latent.length !== size()) return;
    state.point = answer;
    if (answer.nearest !== null) names.set(answer.nearest, answer.nearest_id);
    show();
    tell("decoded");
  } catch (error) {
    if (error.status) toast(error.message);
  }
});

export function refresh() {
  if (state.model && can("decode")) decode();
}

export function show() {
  const { point, model } = state;
  if (!point || !can("decode")) return;
  figures($("decoded"), model, point);
  $("fact-density").textContent = short(point.log_density, 5);
  $("fact-farther").textContent = point.farther === null ? "–" : `${(100 * point.farther).toFixed(0)} %`;
  const near = $("fact-nearest");
  near.replaceChildren("–");
  if (point.nearest !== null) {
    near.replaceChildren(nameOf(point.nearest), el("small", {}, `differs by ${short(point.distance, 2)} sd`));
    near.title = `${nameOf(point.nearest)} differs by ${short(point.distance, 3)} standard deviations a column, in what it has`;
  }
  announce();
}

let speaking = 0;

function announce() {
  clearTimeout(speaking);
  speaking = setTimeout(() => {
    const [a, b] = state.axes;
    const place = [a, b].filter((k) => k < size()).map((k) => `${space().axes[k]} ${short(state.latent[k], 3)}`).join(", ");
    const density = can("density") ? `, log density ${short(state.point.log_density, 4)}` : "";
    $("live").textContent = `${place}${density}`;
  }, 400);
}

on("theme", show);
on("named", show);
