// From one latent point to another: fetched once, then played here.

import { postJson } from "./api.js";
import { $, el, toast } from "./dom.js";
import { figures, thumbnail } from "./rows.js";
import { can, on, state, tell, why } from "./store.js";

let frames = null;
let playing = 0;
let at = 0;
let forward = true;
let last = 0;

export function build() {
  const panel = $("panel-path");
  stop();
  frames = null;
  panel.replaceChildren();
  if (!can("decode")) {
    panel.append(el("p", { class: "blank" }, why("decode")));
    return;
  }
  panel.append(el("p", { class: "note" }, "Click two places in the plot while this is open, or use the current point. Then watch one turn into the other."));
  panel.append(el("div", { class: "buttons" },
    el("button", { type: "button", id: "set-a", onclick: () => setEnd(0, state.latent) }, "Start here (A)"),
    el("button", { type: "button", id: "set-b", onclick: () => setEnd(1, state.latent) }, "End here (B)"),
    el("button", { type: "button", id: "clear-path", class: "quiet", onclick: clear }, "Clear")));
  panel.append(el("div", { id: "path-body" }));
  show();
}

/** A click while the path is open: the start, then the end, then the start again. */
export function click(latent) {
  const [a, b] = state.ends;
  setEnd(a === null || b !== null ? 0 : 1, latent, a !== null && b !== null);
}

export function setEnd(k, latent, fresh = false) {
  stop();
  if (fresh) state.ends = [null, null];
  state.ends[k] = [...latent];
  frames = null;
  tell("ends");
  show();
  if (state.ends[0] && state.ends[1]) fetchFrames();
}

export function clear() {
  stop();
  state.ends = [null, null];
  frames = null;
  tell("ends");
  show();
}

async function fetchFrames() {
  const [start, end] = state.ends;
  const steps = Math.max(2, Math.min(48, Math.floor(1e6 / state.model.features.length)));
  try {
    const found = await postJson("/api/path", { start, end, steps, component: state.component, way: state.way });
    if (state.ends[0] !== start || state.ends[1] !== end) return;
    frames = found;
    at = 0;
    show();
  } catch (error) {
    toast(error.message);
  }
}

function show() {
  const body = $("path-body");
  if (!body) return;
  body.replaceChildren();
  body.className = "panel-body";
  if (!frames) {
    const [a, b] = state.ends;
    const words = a && b ? "Decoding the path…" : a ? "Now choose where the path ends." : "Choose where the path starts.";
    body.append(el("p", { class: "blank" }, words));
    return;
  }
  const scrub = el("input", { type: "range", id: "scrub", min: "0", max: String(frames.values.length - 1), step: "any", value: String(at), "aria-label": "Place on the path" });
  scrub.addEventListener("input", () => { stop(); go(Number(scrub.value)); });
  body.append(el("div", { class: "row-figures", id: "frame" }),
    el("div", { class: "slider" }, el("button", { type: "button", class: "main", id: "play", onclick: toggle }, "Play"), scrub, el("output", { for: "scrub", id: "share" })),
    el("h3", {}, "Along the way"), el("div", { class: "film", id: "film" }));
  const picks = Array.from({ length: 7 }, (_, k) => Math.round((k * (frames.values.length - 1)) / 6));
  $("film").append(...picks.map((k) => el("button", { type: "button", class: "pair", "aria-label": `Go to ${Math.round((100 * k) / (frames.values.length - 1))} %`, onclick: () => { stop(); go(k); } }, thumbnail(state.model, frames.values[k]))));
  go(at);
}

function go(place) {
  at = place;
  const k = Math.min(frames.values.length - 2, Math.floor(place));
  const w = place - k;
  const mix = (a, b) => a.map((x, j) => x + w * (b[j] - x));
  figures($("frame"), state.model, { values: mix(frames.values[k], frames.values[k + 1]) }, { label: "The row at this place on the path" });
  $("scrub").value = String(place);
  $("share").textContent = `${Math.round((100 * place) / (frames.values.length - 1))} %`;
  tell("along", mix(frames.latents[k], frames.latents[k + 1]));
}

export function toggle() {
  if (!frames) return;
  if (playing) {
    stop();
    return;
  }
  $("play").textContent = "Pause";
  last = performance.now();
  playing = requestAnimationFrame(tick);
}

function tick(now) {
  const end = frames.values.length - 1;
  const step = ((now - last) / 2600) * end; // the whole way in 2.6 seconds
  last = now;
  let next = at + (forward ? step : -step);
  if (next >= end || next <= 0) {
    forward = next <= 0;
    next = Math.min(end, Math.max(0, next));
  }
  playing = requestAnimationFrame(tick);
  go(next);
}

export function stop() {
  cancelAnimationFrame(playing);
  playing = 0;
  if ($("play")) $("play").textContent = "Play";
}

on("theme", show);
