// What lies under the points: grid lines, ticks and the names of the axes.

import { fixed, ink } from "./dom.js";

export const MARGIN = { left: 54, right: 14, top: 14, bottom: 34 };

/** Draw grid, ticks and labels under the points of a plane. */
export function drawAxes(drawing, plane) {
  const bottom = plane.height - MARGIN.bottom;
  const [x0, y0] = plane.toData(MARGIN.left, bottom);
  const [x1, y1] = plane.toData(plane.width, 0);
  const across = ticks(x0, x1, plane.width / 110);
  const up = ticks(y0, y1, plane.height / 80);
  drawGrid(drawing, plane, across.at, up.at, bottom);
  drawing.fillStyle = ink("--soft");
  drawing.font = "11px system-ui, sans-serif";
  drawing.textAlign = "center";
  for (const x of across.at) {
    const px = plane.toPixel(x, 0)[0];
    if (px > MARGIN.left + 8) drawing.fillText(fixed(x, across.step), px, bottom + 14);
  }
  drawing.textAlign = "right";
  for (const y of up.at) {
    const py = plane.toPixel(0, y)[1];
    if (py < bottom - 4 && py > 8) drawing.fillText(fixed(y, up.step), MARGIN.left - 7, py + 4);
  }
  drawing.font = "600 12px system-ui, sans-serif";
  drawing.fillStyle = ink("--ink");
  drawing.textAlign = "right";
  drawing.fillText(plane.labels[0], plane.width - MARGIN.right, bottom + 28);
  drawing.save();
  drawing.translate(13, MARGIN.top);
  drawing.rotate(-Math.PI / 2);
  drawing.fillText(plane.labels[1], 0, 0);
  drawing.restore();
}

function drawGrid(drawing, plane, across, up, bottom) {
  drawing.strokeStyle = ink("--line");
  drawing.lineWidth = 1;
  drawing.beginPath();
  for (const x of across) {
    const px = Math.round(plane.toPixel(x, 0)[0]) + 0.5;
    drawing.moveTo(px, 0);
    drawing.lineTo(px, bottom);
  }
  for (const y of up) {
    const py = Math.round(plane.toPixel(0, y)[1]) + 0.5;
    drawing.moveTo(MARGIN.left, py);
    drawing.lineTo(plane.width, py);
  }
  drawing.globalAlpha = 0.55;
  drawing.stroke();
  drawing.globalAlpha = 1;
}

/** Round numbers between two ends, about as many as asked for. */
function ticks(low, high, about) {
  const raw = (high - low) / Math.max(2, about);
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find((k) => k * size >= raw);
  const at = [];
  for (let x = Math.ceil(low / step) * step; x <= high; x += step) at.push(Math.abs(x) < step / 1e6 ? 0 : x);
  return { at, step };
}
