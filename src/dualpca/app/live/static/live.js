// The live page: ask once a second for what is new, and show it.

import { getBlob, getJson, onConnection } from "./api.js";
import { drawChart, drawSensor, rowAt } from "./charts.js";
import { $, context, count, el, ink, short, toast } from "./dom.js";
import { theme } from "./look.js";
import { on, state } from "./store.js";

const EVERY = 1000; // milliseconds between two questions
const LONG = 60; // seconds without a row that are worth a word
const SPANS = [100, 300, 1000, 3000];

const live = {
  rows: 0, // judged so far
  first: 0, // judged before the first row that the page holds
  times: [], values: [], limits: [], alarms: [],
  open: null, past: [], now: {}, silent: 0,
  span: 300, log: true, paused: null, // the number of rows where the charts were held
  cursor: null, picked: null, sensor: null, detail: null,
};
let charts = [];

async function start() {
  if (location.search) history.replaceState(null, "", "/"); // the key is a cookie now
  theme();
  try {
    state.model = await getJson("/api/watch");
  } catch (error) {
    $("summary").textContent = error.message;
    return;
  }
  const { model, source, sensors } = state.model;
  $("summary").replaceChildren(el("b", {}, source), ` · ${count(sensors.length)} sensors · ${model}`);
  $("span").replaceChildren(...[...SPANS, state.model.size].filter((n) => n <= state.model.size).map((n) => el("option", { value: String(n) }, `last ${count(n)}`)));
  $("span").value = String(Math.min(live.span, state.model.size));
  forget();
  await ask();
  connected("ok");
  document.documentElement.dataset.ready = "true";
  setInterval(ask, EVERY);
}

function forget() {
  Object.assign(live, { rows: 0, first: 0, times: [], alarms: [] });
  live.values = state.model.statistics.map(() => []);
  live.limits = state.model.statistics.map(() => []);
}

// --- what is new ----------------------------------------------------------------------------

let asking = false;

async function ask() {
  if (asking) return;
  asking = true;
  try {
    take(await getJson(`/api/rows?since=${live.rows}`));
    await askSensor();
  } catch { /* the connection's own listener says so */ } finally {
    asking = false;
  }
}

function take(found) {
  if (found.run !== state.model.run) {
    location.reload();
    return;
  }
  if (found.first > live.rows || found.rows < live.rows || !live.times.length) { // the page slept
    forget();
    live.first = found.first;
  }
  live.rows = found.rows;
  live.times.push(...found.times);
  live.alarms.push(...found.alarms);
  live.values.forEach((one, k) => one.push(...found.values[k]));
  live.limits.forEach((one, k) => one.push(...found.limits[k]));
  const over = live.times.length - 2 * state.model.size; // twice, so that a pause holds
  if (over > 0) {
    live.first += over;
    for (const one of [live.times, live.alarms, ...live.values, ...live.limits]) one.splice(0, over);
  }
  announce(found);
  Object.assign(live, { open: found.open, past: found.past, silent: found.silent });
  if (found.times.length || !live.rows) live.now = found.now;
  show();
}

/** Tell people who cannot see the page when an alarm begins or ends. */
function announce(found) {
  const before = live.open && live.open.first;
  const after = found.open && found.open.first;
  if (after && after !== before) $("told").textContent = `Alarm at row ${after}: ${found.open.statistics.join(", ")}. ${found.open.words}`;
  else if (before && !after) $("told").textContent = "The alarm is over: in control.";
}

async function askSensor() {
  const { sensors } = state.model;
  const name = live.sensor ?? Object.keys(shown().sensors)[0];
  if (name === undefined || !live.rows || live.paused !== null) return;
  live.detail = await getJson(`/api/sensor/${sensors.indexOf(name)}`);
  showSensor();
}

// --- what is shown --------------------------------------------------------------------------

/** The rows in view: from, to (not with it) in what the page holds. */
function view() {
  const end = (live.paused ?? live.rows) - live.first;
  const from = Math.max(0, end - live.span);
  return [from, Math.max(from, end)];
}

function show() {
  showVerdict();
  showBars();
  showAlarms();
  showCharts();
}

/** A moment, as short as it can be told. */
function moment(text, whole = false) {
  const match = /^(\d{4}-\d\d-\d\d)[T ](\d\d:\d\d(:\d\d)?)/.exec(text);
  if (!match) return text.length > 19 ? text.slice(0, 19) : text;
  const [, day, clock] = match;
  const last = live.times[live.times.length - 1] || "";
  return whole && !last.startsWith(day) ? `${day} ${clock}` : clock;
}

const when = (row, text) => (text ? moment(text, true) : `row ${count(row)}`);

function showVerdict() {
  const box = $("verdict");
  let word = "In control";
  let kind = "good";
  if (live.open) {
    kind = "alarm";
    const [worst] = Object.entries(live.open.sensors);
    word = `Alarm since ${when(live.open.first, live.open.began)}`;
    if (worst) word += `: ${worst[0]} ${percent(worst[1])}`;
  } else if (!live.rows) {
    kind = "empty";
    word = "Waiting for rows";
  } else if (live.silent > LONG) {
    kind = "silent";
    word = `No rows for ${spell(live.silent)}`;
  }
  box.dataset.state = kind;
  if ($("state-word").textContent !== word) $("state-word").textContent = word;
  $("state-more").textContent = more();
  document.title = `${live.open ? "Alarm" : word} – ${state.model.source}`;
}

const percent = (share) => `${Math.round(100 * share)}\u00a0%`;

const spell = (seconds) => (seconds < 120 ? `${Math.round(seconds)} s` : seconds < 7200 ? `${Math.round(seconds / 60)} min` : `${Math.round(seconds / 3600)} h`);

function more() {
  if (!live.rows) return `Nothing has come from ${state.model.source} yet.`;
  const last = live.times[live.times.length - 1];
  const parts = [`${count(live.rows)} rows judged`];
  if (last) parts.push(`the last one at ${moment(last)}`);
  if (live.open) parts.unshift(`${live.open.statistics.join(", ")} up to ${short(live.open.peak, 3)} × the limit for ${count(live.rows - live.open.first + 1)} rows`);
  if (live.open && live.silent > LONG) parts.push(`no rows for ${spell(live.silent)}`);
  return `${parts.join(" · ")}.`;
}

/** What the bars show: the picked alarm, the one that lasts, or the latest rows. */
function shown() {
  const every = live.open ? [live.open, ...live.past] : live.past;
  const picked = every.find((one) => one.first === live.picked);
  if (picked) return { title: "Sensors of the alarm", note: span(picked), sensors: picked.sensors, bad: true };
  if (live.open) return { title: "Sensors of the alarm", note: "Shares of what is wrong since it began.", sensors: live.open.sensors, bad: true };
  return { title: "Sensors", note: "Shares of the deviations in the last 100 rows; within the limits this is noise.", sensors: live.now, bad: false };
}

function showBars() {
  const found = shown();
  $("bars-title").textContent = found.title;
  $("bars-note").textContent = live.rows ? found.note : "";
  $("bars-now").hidden = live.picked === null;
  const box = $("bars");
  box.classList.toggle("bad", found.bad);
  const kept = document.activeElement?.closest?.("#bars button")?.dataset.name;
  const names = Object.keys(found.sensors);
  if (live.sensor && !names.includes(live.sensor)) names.push(live.sensor);
  const worst = live.sensor ?? names[0];
  box.replaceChildren(...names.map((name) => bar(name, found.sensors[name] ?? 0, name === worst)));
  if (kept) box.querySelector(`[data-name="${CSS.escape(kept)}"]`)?.focus();
}

function bar(name, share, pressed) {
  const inner = el("span", {});
  inner.style.width = `${100 * share}%`;
  const node = el("button", { type: "button", title: `Show ${name} beside what is expected of it`, "aria-pressed": String(pressed), onclick: () => pick(name) },
    el("span", { class: "name" }, name), el("span", { class: "track", "aria-hidden": "true" }, inner), el("span", { class: "share" }, percent(share)));
  node.dataset.name = name;
  return el("li", {}, node);
}

function pick(name) {
  live.sensor = live.sensor === name ? null : name;
  showBars();
  askSensor().catch((error) => toast(error.message));
}

function showSensor() {
  const { detail } = live;
  $("sensor").hidden = !detail;
  if (!detail) return;
  const last = detail.measured.length - 1;
  const [x, y] = [detail.measured[last], detail.expected[last]];
  $("sensor-title").textContent = `${detail.name}, last ${count(last + 1)} rows`;
  $("sensor-words").replaceChildren(el("span", { class: "key" }), `measured ${short(x)}`,
    ...(y === null ? [] : [el("span", { class: "key expected" }), `expected from the others ${short(y)}`]));
  const canvas = $("sensor-canvas");
  drawSensor(context(canvas, canvas.clientWidth, canvas.clientHeight), canvas.clientWidth, canvas.clientHeight, detail.measured, detail.expected);
}

const span = (one) => {
  const from = when(one.first, one.began);
  const rows = (one.last ?? live.rows) - one.first + 1;
  return one.last === null ? `since ${from}, ${count(rows)} rows` : `${from}${one.ended && one.ended !== one.began ? ` to ${moment(one.ended)}` : ""}, ${count(rows)} row${rows === 1 ? "" : "s"}`;
};

let listed = "";

function showAlarms() {
  const every = live.open ? [live.open, ...live.past] : live.past;
  const key = JSON.stringify([every.map((one) => [one.first, one.last, one.words]), live.picked, live.open ? live.rows : 0]);
  if (key === listed) return;
  listed = key;
  $("alarm-count").textContent = every.length ? `${count(every.length)}, latest first` : "";
  const kept = document.activeElement?.closest?.("#alarms button")?.dataset.first;
  $("alarms").replaceChildren(...every.map(alarm));
  if (!every.length) $("alarms").replaceChildren(el("li", { class: "note" }, live.rows ? "None so far." : "None."));
  if (kept) document.querySelector(`#alarms [data-first="${kept}"]`)?.focus();
}

function alarm(one) {
  const node = el("button", { type: "button", title: "Show its rows and sensors", "aria-pressed": String(live.picked === one.first), onclick: () => visit(one) },
    el("b", {}, span(one)), el("span", {}, one.words || "no sensor stands out"), el("small", {}, `${one.statistics.join(", ")} up to ${short(one.peak, 3)} × the limit`));
  node.dataset.first = String(one.first);
  return el("li", { class: one.last === null ? "open" : "" }, node);
}

/** Hold the charts at an alarm; once more lets them move. */
function visit(one) {
  if (live.picked === one.first) {
    back();
    return;
  }
  live.picked = one.first;
  const end = Math.min(live.rows, Math.max((one.last ?? live.rows) + Math.round(live.span / 4), live.first + live.span));
  if (one.last !== null && one.last > live.first && end < live.rows) hold(end);
  show();
}

function back() {
  live.picked = null;
  hold(null);
}

// --- charts ---------------------------------------------------------------------------------

function buildCharts() {
  const box = $("charts");
  $("readout").hidden = !live.times.length;
  if (!live.times.length) {
    charts = [];
    box.replaceChildren(el("p", { class: "nothing" }, `The charts begin with the first row of ${state.model.source}.`));
    return;
  }
  charts = state.model.statistics.map((name) => {
    const canvas = el("canvas", { "aria-hidden": "true" });
    const value = el("span", { class: "value" });
    const node = el("div", { class: "chart" }, el("div", { class: "head" }, el("h3", {}, name), value), el("div", { class: "ground" }, canvas));
    return { node, canvas, value };
  });
  box.replaceChildren(...charts.map((one) => one.node));
}

function showCharts() {
  if (!charts.length || !live.times.length) buildCharts();
  const seen = sight();
  if (seen.n) charts.forEach((one, k) => {
    const { clientWidth: width, clientHeight: height } = one.canvas;
    drawChart(context(one.canvas, width, height), width, height, part(k, seen), seen);
    tellValue(one.value, k, seen);
  });
}

const part = (k, { from, to }) => ({
  values: live.values[k].slice(from, to), limits: live.limits[k].slice(from, to), last: k === live.values.length - 1,
});

/** What all charts have in common: rows, bands of episodes, the row pointed at. */
function sight() {
  const [from, to] = view();
  const n = to - from;
  const every = live.open ? [live.open, ...live.past] : live.past;
  const bands = every.map((one) => ({
    from: Math.max(0, one.first - 1 - live.first - from), to: Math.min(n - 1, (one.last ?? live.rows) - 1 - live.first - from), picked: one.first === live.picked,
  })).filter((one) => one.to >= one.from && one.from < n);
  const cursor = live.cursor === null ? null : Math.min(live.cursor, n - 1);
  const label = (i) => {
    const text = live.times[from + i];
    return text ? moment(text) : count(live.first + from + i + 1);
  };
  return { from, to, n, bands, cursor, label, log: live.log };
}

function tellValue(node, k, { to, from, cursor }) {
  const i = cursor === null ? to - 1 : from + cursor;
  const [value, limit] = [live.values[k][i], live.limits[k][i]];
  node.textContent = value === null ? "nothing observed" : `${short(value, 3)}, limit ${short(limit, 3)}`;
  node.classList.toggle("beyond", value !== null && value > limit);
}

function point(cursor) {
  live.cursor = cursor;
  showCharts();
  const { from } = sight();
  const i = from + (cursor ?? 0);
  $("readout").textContent = cursor === null ? "Point at a chart, or use the arrow keys, to read a row."
    : `Row ${count(live.first + i + 1)}${live.times[i] ? ` at ${live.times[i]}` : ""}: ${live.alarms[i] ? "in alarm" : "in control"}.`;
}

$("charts").addEventListener("pointermove", (event) => {
  const { n } = sight();
  if (!charts.length || !n) return;
  const box = charts[0].canvas.getBoundingClientRect();
  point(rowAt(event.clientX - box.left, box.width, n));
});
$("charts").addEventListener("pointerleave", () => point(null));
$("charts").addEventListener("keydown", (event) => {
  const { n } = sight();
  const far = event.shiftKey ? 10 : 1;
  const step = { ArrowLeft: -far, ArrowRight: far }[event.key];
  if (event.key === "Escape") point(null);
  if (!step || !n) return;
  event.preventDefault();
  point(Math.min(n - 1, Math.max(0, (live.cursor ?? n - 1) + step)));
});

// --- controls -------------------------------------------------------------------------------

function hold(rows) {
  live.paused = rows;
  const held = rows !== null;
  $("pause").textContent = held ? "Resume" : "Pause";
  $("pause").setAttribute("aria-pressed", String(held));
  show();
}

$("pause").addEventListener("click", () => {
  if (live.paused === null) hold(live.rows);
  else back();
});
$("bars-now").addEventListener("click", back);
$("span").addEventListener("change", () => {
  live.span = Number($("span").value);
  showCharts();
});
for (const input of document.querySelectorAll('input[name="scale"]')) {
  input.addEventListener("change", () => {
    live.log = input.value === "log";
    showCharts();
  });
}
window.addEventListener("keydown", (event) => {
  if (event.ctrlKey || event.metaKey || event.altKey || event.target.matches?.("select, input")) return;
  if (event.key.toLowerCase() === "p") $("pause").click();
});
window.addEventListener("resize", () => {
  if (!state.model) return;
  showCharts();
  showSensor();
});
on("theme", () => {
  showCharts();
  showSensor();
});

function save(blob, name) {
  const link = el("a", { href: URL.createObjectURL(blob), download: name });
  link.click();
  setTimeout(() => URL.revokeObjectURL(link.href), 10000);
}

$("save-csv").addEventListener("click", async () => {
  try {
    save(await getBlob(`/api/table?count=${live.span}&end=${live.paused ?? 0}`), "watch.csv");
  } catch (error) {
    toast(error.message);
  }
});

$("save-png").addEventListener("click", () => {
  const seen = sight();
  if (!seen.n) {
    toast("There are no rows to draw yet.");
    return;
  }
  const canvas = document.createElement("canvas");
  const [width, height, top] = [1200, 190, 44];
  const drawing = context(canvas, width, top + height * charts.length + 8);
  drawing.fillStyle = ink("--card");
  drawing.fillRect(0, 0, width, top + height * charts.length + 8);
  drawing.fillStyle = ink("--ink");
  drawing.font = "600 16px system-ui, sans-serif";
  drawing.fillText(`${state.model.source}: ${$("state-word").textContent}`, 14, 27);
  charts.forEach((_, k) => {
    drawing.save();
    drawing.translate(14, top + k * height);
    drawing.fillStyle = ink("--ink");
    drawing.textAlign = "left";
    drawing.font = "600 13px system-ui, sans-serif";
    drawing.fillText(state.model.statistics[k], 0, 12);
    drawing.textAlign = "right";
    drawing.font = "12px system-ui, sans-serif";
    drawing.fillText(`limit ${short(live.limits[k][seen.to - 1], 3)}`, width - 28, 12);
    drawing.translate(0, 20);
    drawChart(drawing, width - 28, height - 28, part(k, seen), { ...seen, cursor: null });
    drawing.restore();
  });
  canvas.toBlob((blob) => save(blob, "watch.png"));
});

// --- the connection -------------------------------------------------------------------------

function connected(now) {
  $("status").dataset.state = now === "ok" ? "ok" : "lost";
  $("status-text").textContent = { ok: "Connected", lost: "Not connected", locked: "Locked out" }[now];
  const words = {
    ok: "",
    lost: "The server does not answer: nothing is watched here. This page continues when it is back.",
    locked: "This page's token is no longer valid: the watch was restarted. Open the link that it printed in the terminal.",
  }[now];
  $("banner").hidden = !words;
  $("banner").textContent = words;
}

onConnection(connected);
window.dualpcaLive = live;
start();
