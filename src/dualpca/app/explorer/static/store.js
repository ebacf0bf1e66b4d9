// What the page knows and shows; panels listen for what they care about.

export const state = {
  model: null, // the server's description
  component: 0,
  axes: [0, 1],
  points: new Float32Array(0), // n × q
  times: null, // of rows, if the table tells them
  hidden: new Set(), // levels of the colours' column whose rows are not drawn
  latent: [],
  point: null, // the last decoded answer
  row: -1, // the row whose latents the point has
  way: null,
  selection: [],
  history: [],
  ends: [null, null], // of the path, latents
  tab: "point",
};

const listeners = {};

export const on = (name, listener) => { (listeners[name] ||= []).push(listener); };
export const tell = (name, ...values) => { for (const listener of listeners[name] || []) listener(...values); };

export const space = () => state.model.components[state.component];
export const size = () => space().axes.length;
export const can = (what) => !(what in state.model.reasons);
export const why = (what) => state.model.reasons[what];

/** The latents of a row. */
export const latentsOf = (row) => Array.from(state.points.subarray(row * size(), (row + 1) * size()));

/** The name of a row, if the page knows it. */
export const names = new Map();
export const nameOf = (row) => (state.model.identified ? names.get(row) || "…" : `row ${row + 1}`);

export function select(rows) {
  state.history.push(state.selection);
  if (state.history.length > 50) state.history.shift();
  state.selection = rows;
  tell("selection");
}

export function undo() {
  if (!state.history.length) return;
  state.selection = state.history.pop();
  tell("selection");
}
