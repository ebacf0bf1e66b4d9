// The latent plane: its view, what is drawn in which order, pointer and touch.

import { MARGIN, drawAxes } from "./axes.js";
import { context } from "./dom.js";
import { Grid } from "./grid.js";
import { cross, flag, lasso, ring, trail } from "./marks.js";
import { isDark } from "./palette.js";
import { Points } from "./webgl.js";

const NEAR = 7; // pixels within which a click means a row

export class Scatter {
  /** hooks: pick(x, y, row, dragging), lasso(polygon), hover(row or −1, px, py). */
  constructor(box, [ground, canvas, overlay], hooks) {
    Object.assign(this, { box, ground, overlay, hooks, mode: "explore", labels: ["", ""] });
    this.points = new Points(canvas);
    this.points.onrestored = () => this.redraw();
    this.positions = new Float32Array(0);
    this.states = new Uint8Array(0);
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
    this.states = bytes;
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
    if (!out) return;
    this.view.centre = [x, y];
    this.redraw();
  }

  rowAt(px, py) {
    if (!this.grid) return -1;
    const [ux, uy] = this.unit;
    return this.grid.nearest(...this.toData(px, py), NEAR * ux, NEAR * uy, this.states);
  }

  // --- drawing --------------------------------------------------------------

  resize() {
    this.width = this.box.clientWidth;
    this.height = this.box.clientHeight;
    this.points.resize(this.width, this.height, Math.min(window.devicePixelRatio || 1, 2));
    this.redraw();
  }

  /** Draw in the next frame: everything, or only what lies over the points. */
  redraw(all = true) {
    this.stale ||= all;
    if (this.asked) return;
    this.asked = requestAnimationFrame(() => {
      this.asked = 0;
      if (this.stale) this.draw();
      else if (this.width && this.height) this.drawOverlay();
    });
  }

  draw() {
    if (!this.width || !this.height) return;
    this.stale = false;
    this.drawPoints();
    drawAxes(context(this.ground, this.width, this.height), this);
    this.drawOverlay();
  }

  drawPoints() {
    const [ux, uy] = this.unit;
    const [mx, my] = this.middle;
    const scale = [2 / (ux * this.width), 2 / (uy * this.height)];
    const shift = [(2 * mx) / this.width - 1 - this.view.centre[0] * scale[0], 1 - (2 * my) / this.height - this.view.centre[1] * scale[1]];
    const n = this.positions.length / 2;
    const size = Math.min(16, (n <= 500 ? 9 : n <= 3000 ? 7 : n <= 20000 ? 5 : 3.2) * Math.max(1, this.view.zoom) ** 0.3);
    const alpha = n <= 3000 ? 0.85 : n <= 20000 ? 0.7 : 0.4;
    this.look = { size, alpha, dimmed: n > 20000 ? 0.06 : 0.14 };
    this.points.draw({ scale, shift, ...this.look, rim: isDark() ? [1, 1, 1] : [0.05, 0.07, 0.12] });
  }

  drawOverlay() {
    this.drawMarks(context(this.overlay, this.width, this.height));
  }

  drawMarks(drawing) {
    drawing.save();
    drawing.beginPath();
    drawing.rect(MARGIN.left, 0, this.width - MARGIN.left, this.height - MARGIN.bottom);
    drawing.clip();
    const { marks } = this;
    const at = (place) => this.toPixel(...place);
    const spot = (i) => at(this.positions.subarray(2 * i, 2 * i + 2));
    if (this.grid && marks.nearest >= 0 && marks.nearest !== marks.row) ring(drawing, spot(marks.nearest), "--soft", 7);
    if (this.grid && marks.row >= 0) ring(drawing, spot(marks.row), "--ink", 9);
    if (marks.trail) trail(drawing, marks.trail.map(at));
    marks.ends.forEach((end, k) => end && flag(drawing, at(end), "AB"[k]));
    if (marks.point) cross(drawing, at(marks.point));
    if (this.lassoing) lasso(drawing, this.lassoing);
    drawing.restore();
  }

  // --- pointer and touch ----------------------------------------------------

  listen() {
    const { box } = this;
    box.addEventListener("pointerdown", (event) => this.down(event));
    box.addEventListener("pointermove", (event) => this.move(event));
    for (const name of ["pointerup", "pointercancel"]) box.addEventListener(name, (event) => this.up(event));
    box.addEventListener("dblclick", (event) => this.hooks.open(this.rowAt(...this.at(event))));
    box.addEventListener("pointerleave", () => this.hooks.hover(-1, 0, 0));
    box.addEventListener("wheel", (event) => {
      event.preventDefault();
      this.zoomBy(Math.exp(-event.deltaY * (event.deltaMode ? 0.05 : 0.0015)), ...this.at(event));
    }, { passive: false });
  }

  at(event) {
    const frame = (this.gesture && this.gesture.frame) || this.box.getBoundingClientRect(); // no layout while dragging
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
    this.gesture = { mode, from: [px, py], last: [px, py], moved: false, frame: this.box.getBoundingClientRect() };
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
      this.redraw(false);
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
