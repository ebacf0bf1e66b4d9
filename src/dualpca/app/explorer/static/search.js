// Find rows by number, name or level; by keys too.

import { latest, postJson } from "./api.js";
import { $, count, el, toast } from "./dom.js";
import { moveToRow } from "./point.js";
import { names, state } from "./store.js";
import { openTab } from "./tabs.js";

let hits = [];
let chosen = -1;

const input = $("search");
const list = $("search-list");

const ask = latest(async () => {
  const text = input.value.trim();
  if (!text) {
    close();
    return;
  }
  try {
    const found = await postJson("/api/search", { text });
    if (text !== input.value.trim()) return;
    found.rows.forEach((row, k) => names.set(row, found.ids[k]));
    hits = found.rows;
    show(found);
  } catch (error) {
    if (error.status) toast(error.message);
  }
});

function show(found) {
  chosen = hits.length ? 0 : -1;
  const items = hits.map((row, k) => el("li", { role: "option", id: `hit-${k}`, "aria-selected": String(k === chosen), onpointerdown: (event) => { event.preventDefault(); go(k); } },
    el("b", {}, found.ids[k]), found.where[k] === found.ids[k] ? null : el("small", {}, found.where[k])));
  if (!hits.length) items.push(el("li", { class: "none", role: "option", "aria-disabled": "true", "aria-selected": "false" }, "No row is called so."));
  if (found.more) items.push(el("li", { class: "none", role: "option", "aria-disabled": "true", "aria-selected": "false" }, `The first ${count(hits.length)} are listed.`));
  list.replaceChildren(...items);
  list.hidden = false;
  input.setAttribute("aria-expanded", "true");
  point();
  $("live").textContent = hits.length ? `${hits.length} rows found` : "No row is called so";
}

function point() {
  if (chosen < 0) input.removeAttribute("aria-activedescendant");
  else input.setAttribute("aria-activedescendant", `hit-${chosen}`);
  [...list.children].forEach((item, k) => {
    if (k < hits.length) item.setAttribute("aria-selected", String(k === chosen));
  });
  list.children[chosen]?.scrollIntoView({ block: "nearest" });
}

function close() {
  list.hidden = true;
  hits = [];
  chosen = -1;
  input.setAttribute("aria-expanded", "false");
  input.removeAttribute("aria-activedescendant");
}

function go(k) {
  const row = hits[k];
  close();
  if (row === undefined) return;
  openTab("point");
  moveToRow(row);
}

input.addEventListener("input", ask);
input.addEventListener("blur", close);
input.addEventListener("keydown", (event) => {
  const step = { ArrowDown: 1, ArrowUp: -1 }[event.key];
  if (step && hits.length) {
    chosen = (chosen + step + hits.length) % hits.length;
    point();
  } else if (event.key === "Enter") go(chosen);
  else if (event.key === "Escape" && !list.hidden) close();
  else if (event.key === "Escape") input.value = "";
  else return;
  event.preventDefault();
  event.stopPropagation();
});
window.addEventListener("keydown", (event) => {
  const writing = event.target.matches?.("input:not([type=radio], [type=range], [type=checkbox]), textarea, select");
  if (event.key !== "/" || writing || event.ctrlKey || event.metaKey || !state.model?.rows) return;
  event.preventDefault();
  input.focus();
});
