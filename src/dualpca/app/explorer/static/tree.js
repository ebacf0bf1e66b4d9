// Trees of maps: which map is shown, the way up from it and the maps below it.

import { $, count, el } from "./dom.js";
import { state, tell } from "./store.js";

const HINT = "Click or drag to decode a point; double-click a cluster to see its own map. Arrow keys move the point, the wheel zooms.";

const parents = () => state.model.components.map((one) => one.parent);

/** True for a model whose components are nodes of a tree. */
export const isTree = () => parents().some((one) => one !== null);

const below = (node) => parents().flatMap((one, k) => (one === node ? [k] : []));

/** The nodes from the root to a node. */
function trail(node) {
  const found = [node];
  while (parents()[found[0]] !== null) found.unshift(parents()[found[0]]);
  return found;
}

let places = null; // for every leaf the nodes from the root to it

const leafTrails = () => (places ??= parents().flatMap((_, k) => (below(k).length ? [] : [trail(k)])));

/** True if rows of a group belong to a component, or to what is below it. */
export const within = (group, component) => (isTree() ? leafTrails()[group].includes(component) : group === component);

/** The node below this one that rows of a group belong to; -1 if there is none. */
function next(group, component) {
  const way = leafTrails()[group];
  const at = way.indexOf(component);
  return at >= 0 && at + 1 < way.length ? way[at + 1] : -1;
}

/** Open the map of the cluster that a row belongs to. */
export function lookInside(group) {
  if (!isTree()) return;
  const node = next(group, state.component);
  if (node >= 0) tell("open", node);
}

/** Show the way from the root to this map, and a button for every map below it. */
export function showTree(groups) {
  const box = $("tree");
  box.hidden = !isTree();
  if (box.hidden) return;
  if (groups) $("hint").textContent = HINT;
  const rows = (node) => (groups ? groups.reduce((sum, group) => sum + within(group, node), 0) : 0);
  const words = (node) => `${node ? node : "All"}${groups ? ` · ${count(rows(node))}` : ""}`;
  const button = (node, here) => el("button", {
    type: "button", class: here ? "here" : undefined, "aria-current": here ? "true" : undefined,
    "data-node": String(node), title: here ? "The map that is shown" : "Show this map", onclick: () => tell("open", node),
  }, words(node));
  const up = trail(state.component).map((node) => el("li", {}, button(node, node === state.component)));
  const down = below(state.component).map((node) => el("li", {}, button(node, false)));
  box.replaceChildren(el("span", {}, "Map"), el("ol", { class: "way" }, ...up));
  if (down.length) box.append(el("span", {}, "Inside"), el("ul", {}, ...down));
}
