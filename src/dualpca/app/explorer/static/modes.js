// What the pointer does in the plot, and zoom.

import { $ } from "./dom.js";
import { scatter } from "./plane.js";

export function setMode(mode) {
  scatter.mode = mode;
  $("plot").dataset.mode = mode;
  document.querySelector(`input[name="mode"][value="${mode}"]`).checked = true;
  $("hint").textContent = {
    explore: "Click or drag to decode a point. Arrow keys move it, Shift makes larger steps, the wheel zooms.",
    lasso: "Draw around points to select their rows. Ctrl+Z undoes a selection.",
    pan: "Drag to move the view. The wheel zooms where the pointer is; 0 shows all rows.",
  }[mode];
}

for (const input of document.querySelectorAll('input[name="mode"]')) input.addEventListener("change", () => setMode(input.value));
$("zoom-in").addEventListener("click", () => scatter.zoomBy(1.5));
$("zoom-out").addEventListener("click", () => scatter.zoomBy(1 / 1.5));
$("zoom-reset").addEventListener("click", () => scatter.fit());
