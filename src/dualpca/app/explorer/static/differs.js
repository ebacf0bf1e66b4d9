// How selected rows differ from all others: numbers by their means, levels by their shares.

import { postJson } from "./api.js";
import { count, el, short } from "./dom.js";

const FEW = 8;

/** Fill a box with the differences between some rows and the rest. */
export async function fillDifferences(box, rows) {
  box.replaceChildren(el("p", { class: "note" }, "Comparing…"));
  let found;
  try {
    found = await postJson("/api/difference", { rows });
  } catch (error) {
    box.replaceChildren(el("p", { class: "note" }, error.message));
    return;
  }
  const parts = [];
  if (found.columns.length) parts.push(numbers(found));
  if (found.levels.length) parts.push(levels(found));
  box.replaceChildren(...parts, el("p", { class: "note" }, words(found)));
}

const words = ({ selected, rest, compared }) => `${count(selected)} rows beside the other ${count(rest)}. The ranges hold for all ${compared} comparisons together in 95 % of cases, if rows do not depend on each other and were not chosen by these values. An area drawn in the plot was chosen by them: there the ranges describe the difference, and prove none. Bold: the range does not contain 0.`;

function numbers(found) {
  const lines = found.columns.map((name, k) => ({
    name,
    value: found.gap[k],
    low: found.low[k],
    high: found.high[k],
    text: `${signed(found.gap[k])} sd`,
    title: `${name}: ${short(found.inside[k], 4)} on average, ${short(found.outside[k], 4)} in the rest; ${between(found.low[k], found.high[k], 1)} standard deviations apart`,
    means: `${short(found.inside[k], 3)} / ${short(found.outside[k], 3)}`,
  }));
  return table("Columns", "Difference of means", "Mean / rest", lines);
}

function levels(found) {
  const lines = found.levels.map((name, k) => ({
    name,
    value: found.share[k] - found.share_rest[k],
    low: found.share_low[k],
    high: found.share_high[k],
    text: `${signed(100 * (found.share[k] - found.share_rest[k]))} %`,
    title: `${name}: ${percent(found.share[k])} of the selected rows, ${percent(found.share_rest[k])} of the rest; ${between(found.share_low[k], found.share_high[k], 100)} % apart`,
    means: `${percent(found.share[k])} / ${percent(found.share_rest[k])}`,
  }));
  return table("Levels", "Difference of shares", "Share / rest", lines);
}

const percent = (x) => `${(100 * x).toFixed(x > 0 && x < 0.1 ? 1 : 0)} %`;
const signed = (x) => `${x > 0 ? "+" : ""}${short(x, 2)}`;
const between = (low, high, unit) => (low === null ? "range unknown:" : `${short(unit * low, 2)} to ${short(unit * high, 2)}`);

function table(first, second, third, lines) {
  const most = Math.max(...lines.flatMap((one) => [one.value, one.low ?? 0, one.high ?? 0].map(Math.abs)), 1e-12);
  const body = el("tbody", {});
  const fill = (some) => body.replaceChildren(...some.map((one) => row(one, most)));
  fill(lines.slice(0, FEW));
  const box = el("div", { class: "differences" },
    el("table", {}, el("thead", {}, el("tr", {}, ...[first, second, third].map((name) => el("th", { scope: "col" }, name)))), body));
  if (lines.length > FEW) {
    const more = el("button", { type: "button", class: "quiet" }, `Show ${lines.length - FEW} more`);
    more.addEventListener("click", () => {
      fill(lines);
      more.remove();
    });
    box.append(more);
  }
  return box;
}

function row(one, most) {
  const sure = one.low !== null && (one.low > 0 || one.high < 0);
  const bar = el("span", { class: "bar" });
  const whisker = el("span", { class: "whisker" });
  const place = (node, a, b) => {
    node.style.setProperty("left", `${50 + (50 * Math.min(a, b)) / most}%`);
    node.style.setProperty("width", `${(50 * Math.abs(b - a)) / most}%`);
  };
  place(bar, 0, one.value);
  if (one.low !== null) place(whisker, Math.max(-most, one.low), Math.min(most, one.high));
  return el("tr", { class: sure ? "sure" : undefined, title: one.title },
    el("th", { scope: "row" }, one.name),
    el("td", {}, el("span", { class: "track", "aria-hidden": "true" }, bar, one.low === null ? null : whisker), el("span", { class: "amount" }, one.text)),
    el("td", {}, one.means));
}
