// Eight colours that any colour vision tells apart; from the ninth category on, forms differ too.

import { moment } from "./clock.js";
import { count, el, ink, short } from "./dom.js";

// After Okabe & Ito (2008): yellow vanishes on a light ground and black on a dark one.
const LIGHT = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#22252e", "#8822ee"];
const DARK = ["#56b4e9", "#ff7f3f", "#1fc08e", "#e79bc4", "#f0e442", "#e69f00", "#4a7fe0", "#bbff99"];
const FORMS = ["circle", "triangle", "square", "diamond"];

// cividis (Nuñez, Anderton & Renslow 2018): even in lightness for normal and colour-blind eyes.
const CIVIDIS = ["#00224e", "#123570", "#3b496c", "#575d6d", "#707173", "#8a8678", "#a59c74", "#c3b369", "#e1cc55", "#fee838"];

export const isDark = () => document.documentElement.dataset.theme === "dark";

const rgb = (hex) => [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));

/** Colour and form of a category. */
export function category(code) {
  const colours = isDark() ? DARK : LIGHT;
  const n = colours.length;
  return { colour: colours[code % n], form: Math.floor(code / n) % FORMS.length };
}

/** Colour of a share between 0 and 1. */
export function ramp(share) {
  const at = Math.min(Math.max(share, 0), 1) * (CIVIDIS.length - 1);
  const i = Math.min(Math.floor(at), CIVIDIS.length - 2);
  const [a, b] = [rgb(CIVIDIS[i]), rgb(CIVIDIS[i + 1])];
  return a.map((x, k) => Math.round(x + (at - i) * (b[k] - x)));
}

/** Robust ends of a column: its 1st and 99th hundredths, so that one outlier does not grey the rest. */
export function ends(codes) {
  const known = codes.filter(Number.isFinite).sort();
  if (!known.length) return [0, 1];
  const at = (share) => known[Math.min(known.length - 1, Math.floor(share * known.length))];
  const [low, high] = [at(0.01), at(0.99)];
  return high > low ? [low, high] : [known[0], known[known.length - 1] > known[0] ? known[known.length - 1] : known[0] + 1];
}

/** Colour of rows beyond a limit; they are diamonds, too. */
const beyond = () => (isDark() ? "#ff7f3f" : "#d55e00");
const BEYOND = 3;
const NONE = () => (isDark() ? "#7b8496" : "#8b93a3");

/** What the ends of the scale are: of a distance 0 and its limit, of a time its first and last. */
function scaleOf(column, codes) {
  if (column.limit !== null) return [0, column.limit];
  if (column.kind !== "time") return ends(codes);
  let [low, high] = [Infinity, -Infinity];
  for (const x of codes) {
    if (x < low) low = x;
    if (x > high) high = x;
  }
  return high > low ? [low, high] : [0, 1];
}

/** Bytes for every point: red, green, blue, form. */
export function paint(n, column, codes) {
  const bytes = new Uint8Array(4 * n);
  const none = [...rgb(NONE()), 0];
  const plain = [...rgb(isDark() ? DARK[0] : LIGHT[0]), 0];
  const over = [...rgb(beyond()), BEYOND];
  const kinds = column && column.kind === "category" ? column.levels.map((_, k) => {
    const { colour, form } = category(k);
    return [...rgb(colour), form];
  }) : [];
  const [low, high] = column && column.kind !== "category" ? scaleOf(column, codes) : [0, 1];
  const shades = Array.from({ length: 256 }, (_, k) => [...ramp(k / 255), 0]);
  for (let i = 0; i < n; i += 1) {
    let found = plain;
    if (column) {
      const code = codes[i];
      if (!Number.isFinite(code)) found = none;
      else if (column.kind === "category") found = kinds[code] ?? none;
      else if (column.limit !== null && code > column.limit) found = over;
      else found = shades[Math.min(255, Math.max(0, Math.round((255 * (code - low)) / (high - low))))];
    }
    bytes.set(found, 4 * i);
  }
  return bytes;
}

/** Add the form of a category to a path. */
export function outline(drawing, form, x, y, r) {
  if (form === 0) drawing.arc(x, y, r, 0, 2 * Math.PI);
  else if (form === 1) {
    drawing.moveTo(x, y - r);
    drawing.lineTo(x + r, y + 0.8 * r);
    drawing.lineTo(x - r, y + 0.8 * r);
  } else if (form === 2) drawing.rect(x - 0.82 * r, y - 0.82 * r, 1.64 * r, 1.64 * r);
  else {
    drawing.moveTo(x, y - r);
    drawing.lineTo(x + r, y);
    drawing.lineTo(x, y + r);
    drawing.lineTo(x - r, y);
  }
  drawing.closePath();
}

/** Draw the form of a category. */
function mark(drawing, form, x, y, r) {
  drawing.beginPath();
  outline(drawing, form, x, y, r);
  drawing.fill();
}

const hex = ([r, g, b]) => `#${[r, g, b].map((x) => x.toString(16).padStart(2, "0")).join("")}`;

/** What the legend lists: words with a colour and a form, and the code of a level. */
function entries(column, codes) {
  const missing = codes.some((x) => !Number.isFinite(x)) ? [{ words: "missing", colour: NONE(), form: 0, code: -1 }] : [];
  if (column.kind === "category") return [...column.levels.map((words, code) => ({ words, code, ...category(code) })), ...missing];
  if (column.limit === null) return missing;
  let over = 0;
  for (const x of codes) if (x > column.limit) over += 1;
  return [{ words: `beyond the limit: ${count(over)}`, colour: beyond(), form: BEYOND, code: -2 }, ...missing];
}

/** The words at both ends of a scale of numbers. */
function endWords(column, codes) {
  const [low, high] = scaleOf(column, codes);
  if (column.limit !== null) return ["0", `limit ${short(high, 3)}`];
  if (column.kind !== "time") return [short(low, 3), short(high, 3)];
  const { start, kind } = column.when;
  return [moment(start + low, kind), moment(start + high, kind)];
}

function badge(colour, form) {
  const canvas = el("canvas", { "aria-hidden": "true" });
  canvas.width = 28;
  canvas.height = 28;
  const drawing = canvas.getContext("2d");
  drawing.fillStyle = colour;
  mark(drawing, form, 14, 14, 10);
  return canvas;
}

/** The code by which a row is hidden: its level's, −1 where it has none, −2 beyond a limit. */
export function codeOf(column, code) {
  if (!Number.isFinite(code)) return -1;
  if (column.kind === "category") return code in column.levels ? code : -1;
  return column.limit !== null && code > column.limit ? -2 : null;
}

/** Fill the legend with what the colours mean; a click hides a level's rows, or shows them. */
export function legend(box, column, codes, hidden, toggle) {
  const kept = document.activeElement?.closest?.("#legend") ? document.activeElement.dataset.code : null;
  box.replaceChildren();
  box.hidden = !column;
  if (!column) return;
  box.append(el("h3", {}, column.name));
  if (column.kind !== "category") {
    const canvas = el("canvas", { class: "ramp", "aria-hidden": "true" });
    canvas.width = 140;
    canvas.height = 1;
    const drawing = canvas.getContext("2d");
    for (let x = 0; x < 140; x += 1) {
      drawing.fillStyle = `rgb(${ramp(x / 139).join(" ")})`;
      drawing.fillRect(x, 0, 1, 1);
    }
    const about = column.limit === null ? undefined : "T² and SPE have limits that 95 % of ordinary rows keep together";
    box.append(canvas, el("div", { class: "ends", title: about }, ...endWords(column, codes).map((words) => el("span", {}, words))));
  }
  const items = entries(column, codes).map(({ words, colour, form, code }) => el("li", {}, el("button", {
    type: "button", "data-code": String(code), "aria-pressed": String(!hidden.has(code)), class: hidden.has(code) ? "off" : undefined,
    title: hidden.has(code) ? "Show these rows" : "Hide these rows", onclick: () => toggle(code),
  }, badge(colour, form), el("span", {}, words))));
  if (items.length) box.append(el("ul", {}, ...items));
  if (kept !== null) box.querySelector(`[data-code="${kept}"]`)?.focus();
}

export const legendWidth = (column) => (column ? 190 : 0);

/** The legend as part of a picture. */
export function drawLegend(drawing, column, codes, x, y) {
  drawing.fillStyle = ink("--ink");
  drawing.textAlign = "left";
  drawing.font = "600 12px system-ui, sans-serif";
  drawing.fillText(column.name, x, y);
  drawing.font = "11px system-ui, sans-serif";
  let at = y + 20;
  if (column.kind !== "category") {
    for (let k = 0; k < 70; k += 1) {
      drawing.fillStyle = hex(ramp(k / 69));
      drawing.fillRect(x + 2 * k, at - 10, 2.2, 10);
    }
    const [low, high] = endWords(column, codes);
    drawing.fillStyle = ink("--soft");
    drawing.fillText(low, x, at + 14);
    drawing.textAlign = "right";
    if (column.kind === "time") drawing.fillText(high, x + 140, at + 28);
    else drawing.fillText(high, x + 140, at + 14);
    drawing.textAlign = "left";
    at += column.kind === "time" ? 48 : 34;
  }
  for (const { words, colour, form } of entries(column, codes)) {
    drawing.fillStyle = colour;
    mark(drawing, form, x + 6, at - 4, 5);
    drawing.fillStyle = ink("--ink");
    drawing.fillText(words.length > 26 ? `${words.slice(0, 25)}…` : words, x + 18, at);
    at += 18;
  }
}
