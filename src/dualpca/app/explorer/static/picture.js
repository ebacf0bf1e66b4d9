// The plot as a picture: PNG as the screen shows it, at twice its size, or SVG; with the legend.

import { MARGIN, drawAxes } from "./axes.js";
import { $, el, ink, toast } from "./dom.js";
import { drawLegend, legendWidth, outline } from "./palette.js";
import { painted, scatter, shownColumn } from "./plane.js";
import { state } from "./store.js";
import { SvgContext } from "./svg.js";

const hand = (n) => n.toString(16).padStart(2, "0");

function save(blob, ending) {
  const link = el("a", { href: URL.createObjectURL(blob), download: `${state.model.model}-latents.${ending}` });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

/** The whole picture, drawn with a function for the points. */
function draw(drawing, points) {
  const [column, codes] = shownColumn();
  drawing.fillStyle = ink("--card");
  drawing.fillRect(0, 0, scatter.width + legendWidth(column), scatter.height);
  drawAxes(drawing, scatter);
  points(drawing);
  scatter.drawMarks(drawing);
  if (column) drawLegend(drawing, column, codes, scatter.width + 8, 22);
}

const wide = () => scatter.width + legendWidth(shownColumn()[0]);

export function png() {
  const ratio = 2;
  const canvas = el("canvas");
  [canvas.width, canvas.height] = [wide() * ratio, scatter.height * ratio];
  const drawing = canvas.getContext("2d");
  drawing.setTransform(ratio, 0, 0, ratio, 0, 0);
  const before = scatter.points.ratio;
  scatter.points.resize(scatter.width, scatter.height, ratio);
  scatter.drawPoints(); // and copied at once: the buffer of WebGL lasts for this task only
  draw(drawing, (into) => into.drawImage(scatter.points.canvas, 0, 0, scatter.width, scatter.height));
  scatter.points.resize(scatter.width, scatter.height, before);
  scatter.draw();
  return new Promise((done) => { canvas.toBlob(done, "image/png"); });
}

export function svg() {
  const drawing = new SvgContext(wide(), scatter.height);
  draw(drawing, svgPoints);
  return drawing.toString();
}

/** Rows as dots, all of one colour in one path: circles are round ends of lines without length. */
function svgPoints(drawing) {
  const { size, alpha, dimmed } = scatter.look;
  const { colours, states } = painted();
  const groups = new Map();
  const edge = [MARGIN.left, scatter.width, scatter.height - MARGIN.bottom];
  for (let i = 0; i < states.length; i += 1) {
    if (states[i] > 2) continue;
    const [x, y] = scatter.toPixel(scatter.positions[2 * i], scatter.positions[2 * i + 1]);
    if (x < edge[0] || x > edge[1] || y < 0 || y > edge[2]) continue;
    const key = [states[i], colours[4 * i + 3], ...colours.subarray(4 * i, 4 * i + 3)].join();
    if (!groups.has(key)) groups.set(key, []);
    groups.get(key).push([x, y]);
  }
  for (const [key, places] of [...groups].sort(([a], [b]) => Number(b[0] === "1") - Number(a[0] === "1"))) {
    const [level, form, r, g, b] = key.split(",").map(Number);
    const fill = `#${hand(r)}${hand(g)}${hand(b)}`;
    const opacity = level === 2 ? 1 : level === 1 ? dimmed : alpha;
    const diameter = size * (level === 2 ? 1.35 : 1);
    if (form === 0) {
      const d = places.map(([x, y]) => `M${x.toFixed(1)} ${y.toFixed(1)}h0`).join("");
      drawing.raw(`<path d="${d}" fill="none" stroke="${fill}" stroke-width="${diameter.toFixed(2)}" stroke-linecap="round" stroke-opacity="${opacity}"/>`);
      continue;
    }
    drawing.fillStyle = fill;
    drawing.globalAlpha = opacity;
    drawing.beginPath();
    for (const [x, y] of places) outline(drawing, form, x, y, diameter / 2);
    drawing.fill();
    drawing.globalAlpha = 1;
  }
}

$("save-png").addEventListener("click", async () => {
  const blob = await png();
  if (blob) save(blob, "png");
  else toast("The picture is too large for this browser.");
});
$("save-svg").addEventListener("click", () => save(new Blob([svg()], { type: "image/svg+xml" }), "svg"));
