// The latent plane: view, points, axes, the latent point, lasso and path on top; pointer and touch.

import { context, fixed, ink } from "./dom.js";
import { Grid } from "./grid.js";
import { Points } from "./webgl.js";

const MARGIN = { left: 54, right: 14, top: 14, bottom: 34 };
const NEAR = 7; // pixels within which a click means a row

export class Scatter {
  /** hooks: pick(x, y, row, dragging), lasso(polygon), hover(row or −1, px, py). */
  constructor(box, [ground, canvas, overlay], hooks) {
    Object.assign(this, { box, ground, overlay, hooks, mode: "explore", labels: ["", ""] });
    this.points = new Points(canvas);
    this.points.onrestored = () => this.redraw();
    this.positions = new Float32Array(0);
    this.bounds = [[-1, 1], [-1, 1]];
    this.view = { centre: [0, 0], zoom: 1 };
    this.marks = { point: null, ends: [], trail: null, row: -1, nearest: -1 };
    this.lassoing = null;
    this.touches = new Map();
    new ResizeObserver(() => this.resize()).observe(box);
    this.listen();
    this.resize();
  }

  // --- data and view --------------------------------------------------------

  setPoints(positions, bounds, labels) {
    this.positions = positions;
    this.grid = positions.length ? new Grid(positions) : null;
    this.bounds = bounds;
    this.labels = labels;
    this.points.upload("places", positions);
    this.fit();
  }

  setColours(bytes) {
    this.points.upload("colours", bytes);
    this.redraw();
  }

  setStates(bytes) {
    this.points.upload("states", bytes);
    this.redraw();
  }

  fit() {
    this.view = { centre: this.bounds.map(([a, b]) => (a + b) / 2), zoom: 1 };
    this.redraw();
  }

  /** Data units of one pixel, on each axis. */
  get unit() {
    const room = [this.width - MARGIN.left - MARGIN.right, this.height - MARGIN.top - MARGIN.bottom];
    return this.bounds.map(([a, b], k) => ((b - a || 2) * 1.12) / Math.max(40, room[k]) / this.view.zoom);
  }

  get middle() {
    return [(this.width + MARGIN.left - MARGIN.right) / 2, (this.height + MARGIN.top - MARGIN.bottom) / 2];
  }

  toPixel(x, y) {
    const [ux, uy] = this.unit;
    const [mx, my] = this.middle;
    return [mx + (x - this.view.centre[0]) / ux, my - (y - this.view.centre[1]) / uy];
  }

  toData(px, py) {
    const [ux, uy] = this.unit;
    const [mx, my] = this.middle;
    return [this.view.centre[0] + (px - mx) * ux, this.view.centre[1] - (py - my) * uy];
  }

  zoomBy(factor, px = this.middle[0], py = this.middle[1]) {
    const [x, y] = this.toData(px, py);
    this.view.zoom = Math.min(500, Math.max(0.2, this.view.zoom * factor));
    const [x2, y2] = this.toData(px, py);
    this.view.centre[0] += x - x2;
    this.view.centre[1] += y - y2;
    this.redraw();
  }

  panBy(dx, dy) {
    const [ux, uy] = this.unit;
    this.view.centre[0] -= dx * ux;
    this.view.centre[1] += dy * uy;
    this.redraw();
  }

  /** Move the view only if a place is outside of it. */
  reveal(x, y) {
    const [px, py] = this.toPixel(x, y);
    const out = px < MARGIN.left || px > this.width - MARGIN.right || py < MARGIN.top || py > this.height - MARGIN.bottom;
    if (out) this.view.centre = [x, y];
  }

  rowAt(px, py) {
    if (!this.grid) return -1;
    const [ux, uy] = this.unit;
    return this.grid.nearest(...this.toData(px, py), NEAR * ux, NEAR * uy);
  }

  // --- drawing --------------------------------------------------------------

  resize() {
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
    this.points.resize(this.width, this.height, Math.min(window.devicePixelRatio || 1, 2));
    this.redraw();
  }

  redraw() {
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      this.draw();
    });
  }

  draw() {
    if (!this.width || !this.height) return;
    const [ux, uy] = this.unit;
    const [mx, my] = this.middle;
    const scale = [2 / (ux * this.width), 2 / (uy * this.height)];
    const shift = [(2 * mx) / this.width - 1 - this.view.centre[0] * scale[0], 1 - (2 * my) / this.height - this.view.centre[1] * scale[1]];
    const n = this.positions.length / 2;
    const size = Math.min(16, (n <= 500 ? 9 : n <= 3000 ? 7 : n <= 20000 ? 5 : 3.2) * Math.max(1, this.view.zoom) ** 0.3);
    const alpha = n <= 3000 ? 0.85 : n <= 20000 ? 0.7 : 0.4;
    const dark = ink("color-scheme") === "dark" || document.documentElement.dataset.theme === "dark";
    this.points.draw({ scale, shift, size, alpha, dimmed: n > 20000 ? 0.06 : 0.14, rim: dark ? [1, 1, 1] : [0.05, 0.07, 0.12] });
    this.drawAxes(context(this.ground, this.width, this.height));
    this.drawOverlay();
  }

  drawOverlay() {
    const drawing = context(this.overlay, this.width, this.height);
    drawing.save();
    drawing.beginPath();
    drawing.rect(MARGIN.left, 0, this.width - MARGIN.left, this.height - MARGIN.bottom);
    drawing.clip();
    const { point, ends, trail, row, nearest } = this.marks;
    if (this.grid && nearest >= 0 && nearest !== row) this.ring(drawing, nearest, "--soft", 7);
    if (this.grid && row >= 0) this.ring(drawing, row, "--ink", 9);
    if (trail) this.drawTrail(drawing, trail);
    ends.forEach((end, k) => end && this.flag(drawing, end, "AB"[k]));
    if (point) this.cross(drawing, point);
    if (this.lassoing) this.drawLasso(drawing);
    drawing.restore();
  }

  drawAxes(drawing) {
    drawing.font = "11px system-ui, sans-serif";
    drawing.lineWidth = 1;
    const soft = ink("--soft");
    const line = ink("--line");
    const bottom = this.height - MARGIN.bottom;
    const [x0, y0] = this.toData(MARGIN.left, bottom);
    const [x1, y1] = this.toData(this.width, 0);
    const across = ticks(x0, x1, this.width / 110);
    const up = ticks(y0, y1, this.height / 80);
    drawing.strokeStyle = line;
    drawing.fillStyle = soft;
    drawing.globalAlpha = 0.8;
    drawing.beginPath();
    for (const x of across.at) {
      const px = Math.round(this.toPixel(x, 0)[0]) + 0.5;
      drawing.moveTo(px, 0);
      drawing.lineTo(px, bottom);
    }
    for (const y of up.at) {
      const py = Math.round(this.toPixel(0, y)[1]) + 0.5;
      drawing.moveTo(MARGIN.left, py);
      drawing.lineTo(this.width, py);
    }
    drawing.globalAlpha = 0.55;
    drawing.stroke();
    drawing.globalAlpha = 1;
    drawing.textAlign = "center";
    for (const x of across.at) {
      const px = this.toPixel(x, 0)[0];
      if (px > MARGIN.left + 8) drawing.fillText(fixed(x, across.step), px, bottom + 14);
    }
    drawing.textAlign = "right";
    for (const y of up.at) {
      const py = this.toPixel(0, y)[1];
      if (py < bottom - 4 && py > 8) drawing.fillText(fixed(y, up.step), MARGIN.left - 7, py + 4);
    }
    drawing.font = "600 12px system-ui, sans-serif";
    drawing.fillStyle = ink("--ink");
    drawing.textAlign = "right";
    drawing.fillText(this.labels[0], this.width - MARGIN.right, bottom + 28);
    drawing.save();
    drawing.translate(13, MARGIN.top);
    drawing.rotate(-Math.PI / 2);
    drawing.fillText(this.labels[1], 0, 0);
    drawing.restore();
  }

  ring(drawing, i, colour, r) {
    const [px, py] = this.toPixel(this.positions[2 * i], this.positions[2 * i + 1]);
    drawing.strokeStyle = ink(colour);
    drawing.lineWidth = 2;
    drawing.beginPath();
    drawing.arc(px, py, r, 0, 2 * Math.PI);
    drawing.stroke();
  }

  cross(drawing, [x, y]) {
    const [px, py] = this.toPixel(x, y);
    for (const [width, colour] of [[5, "--card"], [2, "--ink"]]) {
      drawing.strokeStyle = ink(colour);
      drawing.lineWidth = width;
      drawing.beginPath();
      drawing.arc(px, py, 7, 0, 2 * Math.PI);
      for (const [dx, dy] of [[1, 0], [-1, 0], [0, 1], [0, -1]]) {
        drawing.moveTo(px + 7 * dx, py + 7 * dy);
        drawing.lineTo(px + 15 * dx, py + 15 * dy);
      }
      drawing.stroke();
    }
    drawing.fillStyle = ink("--warm");
    drawing.beginPath();
    drawing.arc(px, py, 3, 0, 2 * Math.PI);
    drawing.fill();
  }

  flag(drawing, [x, y], letter) {
    const [px, py] = this.toPixel(x, y);
    drawing.fillStyle = ink("--accent");
    drawing.strokeStyle = ink("--card");
    drawing.lineWidth = 2;
    drawing.beginPath();
    drawing.arc(px, py, 11, 0, 2 * Math.PI);
    drawing.fill();
    drawing.stroke();
    drawing.fillStyle = ink("--accent-ink");
    drawing.font = "700 12px system-ui, sans-serif";
    drawing.textAlign = "center";
    drawing.fillText(letter, px, py + 4.5);
  }

  drawTrail(drawing, [a, b]) {
    drawing.strokeStyle = ink("--accent");
    drawing.lineWidth = 3;
    drawing.setLineDash([7, 5]);
    drawing.beginPath();
    drawing.moveTo(...this.toPixel(...a));
    drawing.lineTo(...this.toPixel(...b));
    drawing.stroke();
    drawing.setLineDash([]);
  }

  drawLasso(drawing) {
    drawing.beginPath();
    for (const [x, y] of this.lassoing) drawing.lineTo(x, y);
    drawing.closePath();
    drawing.fillStyle = ink("--accent");
    drawing.globalAlpha = 0.12;
    drawing.fill();
    drawing.globalAlpha = 1;
    drawing.strokeStyle = ink("--accent");
    drawing.lineWidth = 2;
    drawing.stroke();
  }

  // --- pointer and touch ----------------------------------------------------

  listen() {
    const { box } = this;
    box.addEventListener("pointerdown", (event) => this.down(event));
    box.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) box.addEventListener(name, (event) => this.up(event));
    box.addEventListener("pointerleave", () => this.hooks.hover(-1, 0, 0));
    box.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...this.at(event));
    }, { passive: false });
  }

  at(event) {
    const frame = this.box.getBoundingClientRect();
    return [event.clientX - frame.left, event.clientY - frame.top];
  }

  down(event) {
    if (event.button) return;
    const [px, py] = this.at(event);
    this.touches.set(event.pointerId, [px, py]);
    this.box.setPointerCapture(event.pointerId);
    if (this.touches.size === 2) {
      this.gesture = null;
      this.lassoing = null;
      return;
    }
    const mode = event.shiftKey ? "pan" : this.mode;
    this.gesture = { mode, from: [px, py], last: [px, py], moved: false };
    if (mode === "lasso") this.lassoing = [[px, py]];
  }

  move(event) {
    const [px, py] = this.at(event);
    if (this.touches.size === 2 && this.touches.has(event.pointerId)) this.pinch(event.pointerId, [px, py]);
    else if (this.gesture) this.drag(px, py);
    else this.hooks.hover(this.rowAt(px, py), px, py);
  }

  pinch(id, place) {
    const [other] = [...this.touches].filter(([key]) => key !== id).map(([, value]) => value);
    const before = this.touches.get(id);
    const far = (a, b) => Math.hypot(a[0] - b[0], a[1] - b[1]) || 1;
    this.zoomBy(far(place, other) / far(before, other), (place[0] + other[0]) / 2, (place[1] + other[1]) / 2);
    this.panBy((place[0] - before[0]) / 2, (place[1] - before[1]) / 2);
    this.touches.set(id, place);
  }

  drag(px, py) {
    const { gesture } = this;
    const far = Math.hypot(px - gesture.from[0], py - gesture.from[1]);
    if (!gesture.moved && far < 4) return;
    gesture.moved = true;
    this.hooks.hover(-1, 0, 0);
    if (gesture.mode === "pan") this.panBy(px - gesture.last[0], py - gesture.last[1]);
    else if (gesture.mode === "lasso") {
      const [lx, ly] = this.lassoing[this.lassoing.length - 1];
      if (Math.hypot(px - lx, py - ly) > 3) this.lassoing.push([px, py]);
      this.redraw();
    } else this.hooks.pick(...this.toData(px, py), -1, true);
    gesture.last = [px, py];
  }

  up(event) {
    const [px, py] = this.at(event);
    this.touches.delete(event.pointerId);
    const { gesture } = this;
    if (!gesture || event.type === "pointercancel") {
      this.lassoing = null;
      this.gesture = null;
      this.redraw();
      return;
    }
    this.gesture = null;
    if (gesture.mode === "lasso") {
      const polygon = this.lassoing.map(([x, y]) => this.toData(x, y));
      this.lassoing = null;
      this.redraw();
      if (polygon.length > 2) this.hooks.lasso(polygon);
    } else if (gesture.mode === "explore") {
      const row = gesture.moved ? -1 : this.rowAt(px, py);
      this.hooks.pick(...this.toData(px, py), row, false);
    }
  }
}

/** Round numbers between two ends, about as many as asked for. */
export function ticks(low, high, about) {
  const raw = (high - low) / Math.max(2, about);
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find((k) => k * size >= raw);
  const at = [];
  for (let x = Math.ceil(low / step) * step; x <= high; x += step) at.push(Math.abs(x) < step / 1e6 ? 0 : x);
  return { at, step };
}
