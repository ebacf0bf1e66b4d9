// Moments as the table tells them: in words, and as ticks of an axis.

import { fixed, short } from "./dom.js";

const [MINUTE, HOUR, DAY] = [60, 3600, 86400];
const STEPS = [1, 2, 5, 10, 15, 30, MINUTE, 2 * MINUTE, 5 * MINUTE, 10 * MINUTE, 15 * MINUTE, 30 * MINUTE,
  HOUR, 2 * HOUR, 3 * HOUR, 6 * HOUR, 12 * HOUR, DAY, 2 * DAY, 7 * DAY, 14 * DAY];
const MONTHS = [1, 2, 3, 6, 12, 24, 60, 120];
const NAMES = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

const two = (n) => String(n).padStart(2, "0");

/** A moment in words. */
export function moment(t, kind) {
  if (!Number.isFinite(t)) return "–";
  if (kind === "number") return short(t, 6);
  const at = new Date(Math.round(t) * 1000);
  const clock = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}${at.getUTCSeconds() ? `:${two(at.getUTCSeconds())}` : ""}`;
  if (kind === "clock") return clock;
  const day = `${at.getUTCFullYear()}-${two(at.getUTCMonth() + 1)}-${two(at.getUTCDate())}`;
  return kind === "date" ? day : `${day} ${clock}`;
}

/** Where to put about so many ticks between two moments, with their words. */
export function momentTicks(low, high, about, kind) {
  if (!(high > low)) return [];
  if (kind === "number") return plainTicks(low, high, about);
  const raw = (high - low) / Math.max(2, about);
  const step = STEPS.find((one) => one >= raw && (kind !== "date" || one >= DAY));
  return step ? even(low, high, step, kind) : months(low, high, raw);
}

function plainTicks(low, high, about) {
  const raw = (high - low) / Math.max(2, about);
  const size = 10 ** Math.floor(Math.log10(raw));
  const step = size * [1, 2, 5, 10].find((k) => k * size >= raw);
  const found = [];
  for (let t = Math.ceil(low / step) * step; t <= high; t += step) found.push([t, fixed(t, step * 10)]);
  return found;
}

function even(low, high, step, kind) {
  const found = [];
  let day = null;
  for (let t = Math.ceil(low / step) * step; t <= high; t += step) {
    const at = new Date(t * 1000);
    const date = `${NAMES[at.getUTCMonth()]} ${at.getUTCDate()}`;
    const seconds = step < MINUTE ? `:${two(at.getUTCSeconds())}` : "";
    const clock = `${two(at.getUTCHours())}:${two(at.getUTCMinutes())}${seconds}`;
    const fresh = kind !== "clock" && date !== day;
    found.push([t, step >= DAY || (fresh && clock.startsWith("00:00")) ? date : clock]);
    day = date;
  }
  return found;
}

function months(low, high, raw) {
  const step = MONTHS.find((one) => one * 30.4 * DAY >= raw) || 240;
  const start = new Date(low * 1000);
  const found = [];
  const first = start.getUTCFullYear() * 12 + start.getUTCMonth();
  for (let m = Math.ceil(first / step) * step; ; m += step) {
    const t = Date.UTC(Math.floor(m / 12), m % 12) / 1000;
    if (t > high) return found;
    const year = String(Math.floor(m / 12));
    if (t >= low) found.push([t, step >= 12 ? year : m % 12 ? NAMES[m % 12] : year]);
  }
}
