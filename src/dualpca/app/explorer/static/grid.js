// Which point is where: a grid over the plane, and what lies inside a line drawn by hand.

export class Grid {
  /** positions: Float32Array of x, y for every point. */
  constructor(positions) {
    this.positions = positions;
    const n = positions.length / 2;
    this.low = [Infinity, Infinity];
    this.high = [-Infinity, -Infinity];
    for (let i = 0; i < n; i += 1) {
      for (let k = 0; k < 2; k += 1) {
        const x = positions[2 * i + k];
        if (x < this.low[k]) this.low[k] = x;
        if (x > this.high[k]) this.high[k] = x;
      }
    }
    this.side = Math.min(256, Math.max(4, Math.round(Math.sqrt(n / 4))));
    this.starts = new Uint32Array(this.side * this.side + 1);
    const cells = new Uint32Array(n);
    for (let i = 0; i < n; i += 1) {
      cells[i] = this.cell(1, positions[2 * i + 1]) * this.side + this.cell(0, positions[2 * i]);
      this.starts[cells[i] + 1] += 1;
    }
    for (let c = 0; c < this.side * this.side; c += 1) this.starts[c + 1] += this.starts[c];
    const next = this.starts.slice();
    this.order = new Uint32Array(n);
    for (let i = 0; i < n; i += 1) {
      this.order[next[cells[i]]] = i;
      next[cells[i]] += 1;
    }
  }

  cell(k, x) {
    const width = this.high[k] - this.low[k] || 1;
    return Math.min(this.side - 1, Math.max(0, Math.floor(((x - this.low[k]) / width) * this.side)));
  }

  /** The point nearest to (x, y) within rx, ry; distances are in units of those. −1 if none. Hidden ones (state 3) are not found. */
  nearest(x, y, rx, ry, states = []) {
    let best = 1;
    let found = -1;
    const [x0, x1] = [this.cell(0, x - rx), this.cell(0, x + rx)];
    const [y0, y1] = [this.cell(1, y - ry), this.cell(1, y + ry)];
    for (let row = y0; row <= y1; row += 1) {
      const end = this.starts[row * this.side + x1 + 1];
      for (let at = this.starts[row * this.side + x0]; at < end; at += 1) {
        const i = this.order[at];
        const dx = (this.positions[2 * i] - x) / rx;
        const dy = (this.positions[2 * i + 1] - y) / ry;
        const d = dx * dx + dy * dy;
        if (d <= best && states[i] !== 3) {
          best = d;
          found = i;
        }
      }
    }
    return found;
  }
}

/** Points inside a polygon given as [x, y] pairs, by counting crossings. */
export function inside(positions, polygon, states = []) {
  const found = [];
  const xs = polygon.map((p) => p[0]);
  const ys = polygon.map((p) => p[1]);
  const [left, right, low, high] = [Math.min(...xs), Math.max(...xs), Math.min(...ys), Math.max(...ys)];
  for (let i = 0; i < positions.length / 2; i += 1) {
    const x = positions[2 * i];
    const y = positions[2 * i + 1];
    if (x < left || x > right || y < low || y > high || states[i] === 3) continue;
    let within = false;
    for (let a = 0, b = polygon.length - 1; a < polygon.length; b = a, a += 1) {
      if ((ys[a] > y) !== (ys[b] > y) && x < ((xs[b] - xs[a]) * (y - ys[a])) / (ys[b] - ys[a]) + xs[a]) {
        within = !within;
      }
    }
    if (within) found.push(i);
  }
  return found;
}

/** The k points closest to a place, distances measured in units of ux and uy. */
export function closest(positions, x, y, ux, uy, k, states = []) {
  const n = positions.length / 2;
  const far = new Float64Array(n);
  for (let i = 0; i < n; i += 1) {
    far[i] = states[i] === 3 ? Infinity : ((positions[2 * i] - x) / ux) ** 2 + ((positions[2 * i + 1] - y) / uy) ** 2;
  }
  const order = Array.from({ length: n }, (_, i) => i).sort((a, b) => far[a] - far[b]);
  return order.slice(0, k).filter((i) => far[i] < Infinity).sort((a, b) => a - b);
}
