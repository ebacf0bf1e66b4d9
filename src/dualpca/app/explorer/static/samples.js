// New rows on demand, each with the closest row of the table.

import { postJson } from "./api.js";
import { $, el, short, toast } from "./dom.js";
import { move } from "./point.js";
import { thumbnail } from "./rows.js";
import { can, nameOf, names, on, state, tell, why } from "./store.js";

let seed = 0;
let found = null;

export function build() {
  const panel = $("panel-samples");
  found = null;
  panel.replaceChildren();
  if (!can("sample")) {
    panel.append(el("p", { class: "blank" }, why("sample")));
    return;
  }
  panel.append(
    el("div", { class: "head" }, el("h2", {}, "Samples"), el("button", { type: "button", class: "main", id: "draw", onclick: draw }, "Draw 12")),
    el("p", { class: "note" }, state.model.rows ? `${where()}: copies of rows would show here. Click one to go there.` : "Draws from the model. Click one to go there."),
    el("div", { id: "sample-body" }));
  show();
}

const where = () => (state.model.shape === "image"
  ? "Left a draw from the model, right the row closest to it"
  : "Above a draw from the model, below the row closest to it");

async function draw() {
  seed += 1;
  try {
    found = await postJson("/api/sample", { count: 12, seed, component: state.component });
    found.nearest.forEach((row, i) => { if (row !== null) names.set(row, found.nearest_ids[i]); });
    show();
  } catch (error) {
    toast(error.message);
  }
}

function show() {
  const body = $("sample-body");
  if (!body) return;
  if (!found) {
    body.className = "";
    body.replaceChildren(el("p", { class: "blank" }, "Nothing drawn yet."));
    return;
  }
  body.className = `pairs${state.model.shape === "image" ? "" : " long"}`;
  body.replaceChildren(...found.values.map((values, i) => pair(values, i)));
}

function pair(values, i) {
  const near = found.nearest[i];
  const two = el("div", { class: "two" }, thumbnail(state.model, values));
  if (found.beside[i]) two.append(thumbnail(state.model, found.beside[i]));
  const words = near === null ? `Sample ${i + 1}` : `${nameOf(near)}, by ${short(found.distance[i], 2)} sd`;
  return el("button", {
    type: "button", class: "pair", "aria-label": near === null ? words : `Sample ${i + 1}; the closest row is ${words}`,
    onclick: () => move(found.latents[i]),
    onpointerenter: () => tell("nearest", near ?? -1), onpointerleave: () => tell("nearest", -1),
    onfocus: () => tell("nearest", near ?? -1), onblur: () => tell("nearest", -1),
  }, two, el("p", {}, words));
}

on("theme", show);
