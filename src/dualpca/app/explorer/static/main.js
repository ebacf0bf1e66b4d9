// Start, describe the model, open one of its components.

import { getModel, getPoints } from "./api.js";
import { connected } from "./connection.js";
import { $, count, disable, el } from "./dom.js";
import "./keyboard.js";
import "./picture.js";
import "./search.js";
import { theme } from "./look.js";
import { axisLabel, chooseColour, learnGroups, place, restate, scatter } from "./plane.js";
import { move, showSliders } from "./point.js";
import { isTree } from "./tree.js";
import { can, latentsOf, on, size, space, state, why } from "./store.js";
import { buildPanels } from "./tabs.js";
import * as timeline from "./timeline.js";

async function start() {
  if (location.search) history.replaceState(null, "", "/"); // the key is a cookie now
  theme();
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
  await timeline.build();
  connected("ok");
  document.documentElement.dataset.ready = "true";
}

function describe() {
  const { model } = state;
  const q = model.components.length > 1 ? `${model.components.length} ${isTree() ? "maps" : "components"}` : `${size()} latents`;
  const rows = model.rows ? `${count(model.rows)} rows of ${model.source}` : "no table";
  $("summary").replaceChildren(el("b", {}, model.model), ` · ${q} · ${count(model.features.length)} features · ${rows}`);
  document.title = `${model.model} – dualpca explorer`;
  const empty = $("empty");
  empty.hidden = model.rows > 0;
  empty.textContent = can("decode")
    ? "No table was given, so there are no points to show. Click or drag anywhere to decode; name a table on the command line to see its rows."
    : "No table was given, and this model has no way back from latents: there is nothing to show. Name a table on the command line.";
  if (!model.rows) {
    disable($("search"), "There are no rows to find: no table was given.");
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
  $("component-field").hidden = model.components.length < 2 || isTree();
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

/** What to colour by at first: what was asked for, else components, else a column of categories. */
function first() {
  const { columns, color } = state.model;
  const asked = columns.findIndex((one) => one.name === color && one.kind !== "none");
  if (asked >= 0) return String(asked);
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
  await learnGroups();
  for (const [id, at] of [["axis-x", 0], ["axis-y", 1]]) {
    $(id).replaceChildren(...space().axes.map((name, j) => el("option", { value: String(j), title: axisLabel(j) }, name)));
    $(id).value = String(state.axes[at]);
    if (size() < 2 && at) disable($(id), "There is only one latent; points are spread vertically to be visible.");
  }
  buildPanels();
  place();
  restate();
  move(new Array(size()).fill(0));
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
    showSliders();
  });
}
async function change(k) {
  await openComponent(k);
  await timeline.build();
}
$("component").addEventListener("change", () => change(Number($("component").value)));
on("open", change);
$("colour").addEventListener("change", () => chooseColour($("colour").value));
$("help").addEventListener("click", () => $("keys").showModal());

window.dualpcaExplorer = { state, scatter: () => scatter, latentsOf, timeline: timeline.shown };
start();
