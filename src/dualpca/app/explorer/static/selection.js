// Selected rows: their table, how well they are reconstructed, and the way out as CSV.

import { postBlob, postJson } from "./api.js";
import { $, count, el, short, toast } from "./dom.js";
import { fillDifferences } from "./differs.js";
import { moveToRow } from "./point.js";
import { can, names, on, select, state, tell, undo, why } from "./store.js";

const PAGE = 100;
const SOME = 5000; // rows that the mean error is taken of
const MOST = 100000; // rows of an export
let page = 0;
let asked = 0;

export function build() {
  const panel = $("panel-selection");
  panel.replaceChildren(
    el("div", { class: "head" }, el("h2", { id: "selection-title" }, "No rows selected"), el("div", { class: "buttons" },
      el("button", { type: "button", id: "undo", onclick: undo }, "Undo"),
      el("button", { type: "button", id: "clear", onclick: () => select([]) }, "Clear"))),
    el("div", { id: "selection-body" }));
  show();
}

on("selection", () => {
  page = 0;
  show();
});

function show() {
  const { selection } = state;
  const body = $("selection-body");
  if (!body) return;
  body.className = "panel-body";
  $("undo").disabled = !state.history.length;
  $("clear").disabled = !selection.length;
  const n = selection.length;
  $("selection-title").textContent = n ? `${count(n)} row${n === 1 ? "" : "s"} selected` : "No rows selected";
  tell("selected-count", n);
  if (!state.model.rows) {
    body.replaceChildren(el("p", { class: "blank" }, "There are no rows: no table was given on the command line."));
  } else if (!n) {
    body.replaceChildren(el("p", { class: "blank" }, "Choose Lasso above the plot and draw around some points. With the keyboard: focus the plot and press S for the 50 rows nearest to the point."));
  } else fill(body);
}

async function fill(body) {
  const turn = (asked += 1);
  const rows = state.selection.slice(page * PAGE, (page + 1) * PAGE);
  let found;
  let errors = null;
  try {
    const step = Math.ceil(state.selection.length / SOME);
    const some = step > 1 ? state.selection.filter((_, i) => i % step === 0) : state.selection;
    const all = { rows: some, component: state.component };
    [found, errors] = await Promise.all([
      postJson("/api/rows", { rows, component: state.component }),
      can("error") ? postJson("/api/errors", all) : null,
    ]);
  } catch (error) {
    toast(error.message);
    return;
  }
  if (turn !== asked) return;
  found.ids.forEach((id, i) => names.set(rows[i], id));
  const pages = Math.ceil(state.selection.length / PAGE);
  body.replaceChildren(facts(errors), worst(errors) ?? "", differs(), table(found, rows), pager(pages) ?? "",
    el("div", { class: "buttons" }, el("button", { type: "button", class: "main", id: "export", onclick: save }, "Export CSV"),
      el("span", { class: "note" }, "All columns, latents and errors")));
  tell("named");
}

/** How the selection differs from the rest: asked for once it is opened, and then kept open. */
let open = true;

function differs() {
  const box = el("div", { id: "differences" });
  if (state.selection.length === state.model.rows) box.append(el("p", { class: "note" }, "All rows are selected: there is no rest to compare with."));
  const whole = el("details", { class: "differs" }, el("summary", {}, "How these rows differ from the rest"), box);
  const { selection } = state;
  let done = selection.length === state.model.rows || selection.length > MOST;
  whole.addEventListener("toggle", () => {
    ({ open } = whole);
    if (!open || done) return;
    done = true;
    fillDifferences(box, selection);
  });
  whole.open = open;
  return whole;
}

function facts(errors) {
  const box = el("dl", { class: "facts" });
  const add = (name, value, title) => box.append(el("div", { title }, el("dt", {}, name), el("dd", {}, value)));
  const some = errors && errors.count < state.selection.length ? `, of ${count(errors.count)} of the rows` : "";
  const words = can("error") ? `Root mean squared difference of a row and its reconstruction, in standard deviations of the columns${some}` : why("error");
  const told = (x) => (errors ? `${short(x, 3)} sd` : "–");
  add("Mean error", told(errors && errors.mean), words);
  add("Largest error", told(errors && errors.largest), words);
  add("Of all rows", `${((100 * state.selection.length) / state.model.rows).toFixed(1)} %`);
  return box;
}

/** The columns that are reconstructed worst, each in its own standard deviation. */
function worst(errors) {
  if (!errors || state.model.shape !== "bars" || errors.columns.length < 2) return null;
  const each = errors.columns.map((name, k) => `${name} ${short(errors.by_column[k], 2)}`);
  return el("p", { class: "note", id: "worst-columns" }, `Largest errors, in standard deviations of the column: ${each.join(", ")}.`);
}

function table(found, rows) {
  const head = ["Row", ...(found.errors ? ["Error, sd"] : []), ...found.columns, ...found.latents[0].map((_, k) => `latent ${k + 1}`)];
  const lines = rows.map((row, i) => el("tr", {},
    el("th", { scope: "row" }, el("button", { type: "button", title: "Show this row in the plot", onclick: () => moveToRow(row) }, found.ids[i])),
    ...(found.errors ? [el("td", {}, short(found.errors[i], 4))] : []),
    ...found.columns.map((_, k) => el("td", {}, found.cells[i][k])),
    ...found.latents[i].map((z) => el("td", {}, short(z, 3)))));
  return el("div", { class: "table-box", tabindex: "0", role: "region", "aria-label": "Selected rows" },
    el("table", {}, el("thead", {}, el("tr", {}, ...head.map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, ...lines)));
}

function pager(pages) {
  if (pages < 2) return null;
  const turn = (step) => () => {
    page += step;
    show();
  };
  return el("div", { class: "buttons" },
    el("button", { type: "button", disabled: page === 0, onclick: turn(-1) }, "Previous"),
    el("span", { class: "note" }, `${count(page * PAGE + 1)}–${count(Math.min(state.selection.length, (page + 1) * PAGE))} of ${count(state.selection.length)}`),
    el("button", { type: "button", disabled: page >= pages - 1, onclick: turn(1) }, "Next"));
}

async function save() {
  if (state.selection.length > MOST) {
    toast(`An export has at most ${count(MOST)} rows: select fewer.`);
    return;
  }
  try {
    const blob = await postBlob("/api/export", { rows: state.selection, component: state.component });
    const link = el("a", { href: URL.createObjectURL(blob), download: "selection.csv" });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.href), 10000);
  } catch (error) {
    toast(error.message);
  }
}
