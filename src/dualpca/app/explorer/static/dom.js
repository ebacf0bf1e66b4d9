// Small helpers. Text is always set as text, never as markup.

export const $ = (id) => document.getElementById(id);

/** Make an element: attributes, `on…` handlers and properties by name, children as text or nodes. */
export function el(tag, attributes = {}, ...children) {
  const node = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (value === undefined || value === null || value === false) continue;
    if (name.startsWith("on")) node.addEventListener(name.slice(2), value);
    else if (name in node && name !== "list" && typeof value !== "string") node[name] = value;
    else node.setAttribute(name, value === true ? "" : value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

/** A number for people: short, with a proper minus sign. */
export function short(x, digits = 4) {
  if (x === null || x === undefined || !Number.isFinite(x)) return "–";
  const size = Math.abs(x);
  let text;
  if (size !== 0 && (size >= 1e6 || size < 1e-4)) text = x.toExponential(2);
  else text = String(Number(x.toPrecision(digits)));
  return text.replace("-", "−");
}

/** A number with as many decimals as a step needs, so that ticks and sliders do not jump. */
export function fixed(x, step) {
  const decimals = Math.min(8, Math.max(0, Math.ceil(-Math.log10(step || 1)) + 1));
  const size = Math.abs(x);
  if (size >= 1e5 || (size > 0 && size < 1e-4)) return short(x, 3);
  return x.toFixed(Math.min(decimals, 4)).replace("-", "−");
}

export const count = (n) => n.toLocaleString("en");

/** Disable a control, with the reason in its title for pointers and screen readers. */
export function disable(node, why) {
  node.disabled = true;
  node.title = why;
}

let fading = 0;

/** Show an error message. */
export function toast(words) {
  const box = $("toast");
  box.textContent = words;
  box.hidden = false;
  clearTimeout(fading);
  fading = setTimeout(() => { box.hidden = true; }, 6000);
}

const inks = new Map();

/** The value of a colour in the style sheet: looked up once a theme, since a look makes the browser restyle. */
export function ink(name) {
  const key = `${document.documentElement.dataset.theme} ${name}`;
  if (!inks.has(key)) inks.set(key, getComputedStyle(document.documentElement).getPropertyValue(name).trim());
  return inks.get(key);
}

/** Give a canvas the pixels that it covers, and return its context in CSS pixels. */
export function context(canvas, width, height) {
  const ratio = Math.min(window.devicePixelRatio || 1, 3);
  const [columns, rows] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  const drawing = canvas.getContext("2d");
  if (canvas.width !== columns || canvas.height !== rows) [canvas.width, canvas.height] = [columns, rows];
  else {
    drawing.setTransform(1, 0, 0, 1, 0, 0);
    drawing.clearRect(0, 0, columns, rows);
  }
  drawing.setTransform(ratio, 0, 0, ratio, 0, 0);
  drawing.setLineDash([]);
  drawing.globalAlpha = 1;
  return drawing;
}
