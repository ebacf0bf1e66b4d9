// Talk to the server; notice when it stops, when it is back, and when the token is no longer valid.

const listeners = new Set();
let state = "ok";
let waiting = 0;

/** Listen for 'ok', 'lost' and 'locked'. */
export const onConnection = (listener) => listeners.add(listener);

function become(next) {
  if (next === state) return;
  state = next;
  for (const listener of listeners) listener(next);
  if (next === "lost") poll();
}

class ApiError extends Error {
  constructor(status, words) {
    super(words);
    this.status = status;
  }
}

async function ask(path, options = {}) {
  let answer;
  try {
    answer = await fetch(path, { credentials: "same-origin", cache: "no-store", ...options });
  } catch {
    become("lost");
    throw new ApiError(0, "The server does not answer.");
  }
  if (answer.status === 401 || answer.status === 403) become("locked");
  else become("ok");
  if (answer.ok) return answer;
  let words = `The server answered ${answer.status}.`;
  try {
    words = (await answer.json()).error || words;
  } catch { /* not JSON: the status has to do */ }
  throw new ApiError(answer.status, words);
}

function poll() {
  clearTimeout(waiting);
  waiting = setTimeout(async () => {
    try {
      await health();
    } catch {
      if (state === "lost") poll();
    }
  }, 800);
}

export const getJson = async (path) => (await ask(path)).json();
export const getBlob = async (path) => (await ask(path)).blob();
export const health = () => getJson("/api/health");
export const getModel = () => getJson("/api/model");
export const getPoints = async (component) => floats(await ask(`/api/points/${component}`));
export const getColours = async (column) => floats(await ask(`/api/colours/${column}`));

export const getTimes = async () => new Float64Array(await (await ask("/api/times")).arrayBuffer());

const floats = async (answer) => new Float32Array(await answer.arrayBuffer());

const pause = (ms) => new Promise((done) => { setTimeout(done, ms); });

async function post(path, body) {
  const options = { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body) };
  try {
    return await ask(path, options);
  } catch (error) {
    if (error.status !== 429) throw error;
    await pause(1000);
    return ask(path, options);
  }
}

export const postJson = async (path, body) => (await post(path, body)).json();
export const postBlob = async (path, body) => (await post(path, body)).blob();

/** Run one request at a time; of those asked for meanwhile only the latest. */
export function latest(work) {
  let running = false;
  let next = null;
  return async function request(...args) {
    if (running) {
      next = args;
      return;
    }
    running = true;
    try {
      await work(...args);
    } finally {
      running = false;
      if (next) {
        const args2 = next;
        next = null;
        request(...args2);
      }
    }
  };
}
