// Show whether the server answers; continue when it is back, and reload if its model has changed.

import { getModel, health, onConnection } from "./api.js";
import { $ } from "./dom.js";
import { refresh } from "./point.js";
import { state } from "./store.js";

let lost = false;

function banner(words, kind = "bad") {
  const box = $("banner");
  box.hidden = !words;
  box.dataset.kind = kind;
  box.textContent = words;
}

export async function connected(now) {
  $("status").dataset.state = now === "ok" ? "ok" : "lost";
  $("status-text").textContent = { ok: "Connected", lost: "Not connected", locked: "Locked out" }[now];
  if (now === "lost") {
    lost = true;
    banner("The server does not answer. It may have been stopped; this page continues when it is back.");
  } else if (now === "locked") {
    banner("This page's token is no longer valid: the server was restarted. Open the link that it printed in the terminal.");
  } else if (lost) {
    lost = false;
    await rejoin();
  } else banner("");
}

async function rejoin() {
  try {
    const fresh = await getModel();
    const same = ["model", "rows", "features", "shape", "size", "components"].every((key) => JSON.stringify(fresh[key]) === JSON.stringify(state.model[key]));
    if (!same) {
      location.reload();
      return;
    }
    state.model = fresh;
    banner("The server is back.", "good");
    setTimeout(() => { if (!lost) banner(""); }, 3000);
    refresh();
  } catch { /* the next poll tries again */ }
}

onConnection(connected);
setInterval(async () => {
  if (document.hidden || !state.model) return;
  try {
    const { run } = await health();
    if (run !== state.model.run) {
      state.model.run = run;
      await rejoin();
    }
  } catch { /* the connection's own listener says so */ }
}, 4000);
