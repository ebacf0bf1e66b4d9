// The row that the point stands on: what was measured, beside what the model expects of it.

import { latest, postJson } from "./api.js";
import { $, el, short } from "./dom.js";
import { said } from "./rows.js";
import { can, nameOf, names, on, state, tell } from "./store.js";

const FAR = 3; // standard deviations from which an entry stands out
const FEW = 12; // entries that are listed at first
let found = null;
let all = false;

export function build() {
  found = null;
  return el("section", { id: "beside", "aria-labelledby": "beside-title", hidden: true });
}

const ask = latest(async () => {
  const { row } = state;
  if (row < 0) return;
  try {
    const answer = await postJson("/api/expected", { row });
    if (row !== state.row) return;
    found = { row, ...answer };
    names.set(row, answer.id);
    all = false;
    show();
    tell("named");
  } catch {
    found = null; // the model cannot say: the panel has its reason
    show();
  }
});

const able = () => state.model.rows && (can("impute") || can("error"));

function moved() {
  if (found && found.row === state.row) return;
  if (found) {
    found = null;
    show();
  }
  if (state.row >= 0 && able()) ask();
}

function show() {
  const box = $("beside");
  if (!box) return;
  box.hidden = !found;
  if (!found) return;
  const shown = all ? found.features.length : Math.min(FEW, found.features.length);
  const words = found.itself
    ? "Expected is the reconstruction, which has seen the entry; differences are in standard deviations of the columns."
    : "Each entry is hidden in turn and expected from the rest of its row; differences are in standard deviations of what is expected.";
  const rest = found.features.length - shown;
  box.replaceChildren(
    el("h2", { id: "beside-title" }, `${nameOf(found.row)}: measured and expected`),
    el("div", { class: "table-box short", tabindex: "0", role: "region", "aria-label": "Measured beside expected values" },
      el("table", {}, el("thead", {}, el("tr", {}, ...["Column", "Measured", "Expected", "Apart"].map((name) => el("th", { scope: "col" }, name)))),
        el("tbody", {}, ...found.features.slice(0, shown).map((j, k) => line(j, k))))),
    rest ? el("button", { type: "button", id: "beside-more", class: "quiet", onclick: () => { all = true; show(); } }, `Show ${rest} more`) : "",
    el("p", { class: "note" }, words, found.total > found.features.length ? ` The ${found.features.length} of ${found.total} columns that are rebuilt worst.` : ""));
}

function line(j, k) {
  const { model } = state;
  const std = found.std[k];
  const expected = found.expected[k] === null ? "–" : `${said(model, j, found.expected[k])}${std === null ? "" : ` ± ${short(std, 2)}`}`;
  const far = found.unusual[k] !== null && found.unusual[k] >= FAR;
  return el("tr", { class: far ? "far" : undefined },
    el("th", { scope: "row" }, model.features[j]),
    el("td", {}, found.measured[k] === null ? "missing" : said(model, j, found.measured[k])),
    el("td", {}, expected), el("td", {}, apart(k)));
}

function apart(k) {
  if (found.unusual[k] === null) return "–";
  if (found.chance[k] !== null) return `${short(100 * found.chance[k], 2)} % likely`;
  const sign = found.expected[k] !== null && found.measured[k] < found.expected[k] ? "−" : "+";
  return `${sign}${short(found.unusual[k], 2)} sd`;
}

on("moved", moved);
on("theme", show);
