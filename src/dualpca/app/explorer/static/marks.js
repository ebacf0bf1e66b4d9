// What lies over the points: rows that stand out, the latent point, a path and its ends, a lasso.
// Places are pixels.

import { ink } from "./dom.js";

/** A circle around a row. */
export function ring(drawing, [x, y], colour, r) {
  drawing.strokeStyle = ink(colour);
  drawing.lineWidth = 2;
  drawing.beginPath();
  drawing.arc(x, y, r, 0, 2 * Math.PI);
  drawing.stroke();
}

/** The latent point. */
export function cross(drawing, [x, y]) {
  for (const [width, colour] of [[5, "--card"], [2, "--ink"]]) {
    drawing.strokeStyle = ink(colour);
    drawing.lineWidth = width;
    drawing.beginPath();
    drawing.arc(x, y, 7, 0, 2 * Math.PI);
    for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
      drawing.moveTo(x + 7 * dx, y + 7 * dy);
      drawing.lineTo(x + 15 * dx, y + 15 * dy);
    }
    drawing.stroke();
  }
  drawing.fillStyle = ink("--warm");
  drawing.beginPath();
  drawing.arc(x, y, 3, 0, 2 * Math.PI);
  drawing.fill();
}

/** An end of a path. */
export function flag(drawing, [x, y], letter) {
  drawing.fillStyle = ink("--accent");
  drawing.strokeStyle = ink("--card");
  drawing.lineWidth = 2;
  drawing.beginPath();
  drawing.arc(x, y, 11, 0, 2 * Math.PI);
  drawing.fill();
  drawing.stroke();
  drawing.fillStyle = ink("--accent-ink");
  drawing.font = "700 12px system-ui, sans-serif";
  drawing.textAlign = "center";
  drawing.fillText(letter, x, y + 4.5);
}

export function trail(drawing, [start, end]) {
  drawing.strokeStyle = ink("--accent");
  drawing.lineWidth = 3;
  drawing.setLineDash([7, 5]);
  drawing.beginPath();
  drawing.moveTo(...start);
  drawing.lineTo(...end);
  drawing.stroke();
  drawing.setLineDash([]);
}

export function lasso(drawing, polygon) {
  drawing.beginPath();
  for (const [x, y] of polygon) drawing.lineTo(x, y);
  drawing.closePath();
  drawing.fillStyle = ink("--accent");
  drawing.globalAlpha = 0.12;
  drawing.fill();
  drawing.globalAlpha = 1;
  drawing.strokeStyle = ink("--accent");
  drawing.lineWidth = 2;
  drawing.stroke();
}
