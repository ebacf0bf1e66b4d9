// Eight colours that any colour vision tells apart; from the ninth category on, forms differ too.

import { el, short } from "./dom.js";

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

/** Bytes for every point: red, green, blue, form. */
export function paint(n, column, codes) {
  const bytes = new Uint8Array(4 * n);
  const none = rgb(isDark() ? "#7b8496" : "#8b93a3");
  const plain = rgb(isDark() ? DARK[0] : LIGHT[0]);
  const [low, high] = column && column.kind === "number" ? ends(codes) : [0, 1];
  const kinds = column && column.kind === "category" ? column.levels.map((_, k) => {
    const { colour, form } = category(k);
    return [...rgb(colour), form];
  }) : [];
  for (let i = 0; i < n; i += 1) {
    let found = [...plain, 0];
    if (column) {
      const code = codes[i];
      if (!Number.isFinite(code)) found = [...none, 0];
      else if (column.kind === "category") found = kinds[code] ?? [...none, 0];
      else found = [...ramp((code - low) / (high - low)), 0];
    }
    bytes.set(found, 4 * i);
  }
  return bytes;
}

/** Draw the form of a category. */
function mark(drawing, form, x, y, r) {
  drawing.beginPath();
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

/** Fill the legend with what the colours mean. */
export function legend(box, column, codes) {
  box.replaceChildren();
  box.hidden = !column;
  if (!column) return;
  box.append(el("h3", {}, column.name));
  if (column.kind === "category") {
    const items = column.levels.map((level, k) => {
      const canvas = el("canvas", { "aria-hidden": "true" });
      canvas.width = 28;
      canvas.height = 28;
      const drawing = canvas.getContext("2d");
      const { colour, form } = category(k);
      drawing.fillStyle = colour;
      mark(drawing, form, 14, 14, 10);
      drawing.fill();
      return el("li", {}, canvas, level);
    });
    box.append(el("ul", {}, ...items));
    return;
  }
  const canvas = el("canvas", { class: "ramp", "aria-hidden": "true" });
  canvas.width = 140;
  canvas.height = 1;
  const drawing = canvas.getContext("2d");
  for (let x = 0; x < 140; x += 1) {
    drawing.fillStyle = `rgb(${ramp(x / 139).join(" ")})`;
    drawing.fillRect(x, 0, 1, 1);
  }
  const [low, high] = ends(codes);
  box.append(canvas, el("div", { class: "ends" }, el("span", {}, short(low, 3)), el("span", {}, short(high, 3))));
}
