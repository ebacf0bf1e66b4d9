// Draws every figure of the page from the JSON beside it. Text, grid and axes take their colours
// from the style sheet, so a dark page and a printed one need nothing here.
(() => {
  "use strict";
  const touch = matchMedia("(pointer: coarse)").matches;
  const config = {
    responsive: true,
    displaylogo: false,
    displayModeBar: touch ? false : "hover",
    modeBarButtonsToRemove: ["lasso2d", "select2d", "autoScale2d"],
  };

  // A view box lets a printed page scale the drawing to its own width.
  const frame = (box) => {
    for (const svg of box.querySelectorAll("svg.main-svg")) {
      const [width, height] = [svg.getAttribute("width"), svg.getAttribute("height")];
      if (width > 0 && height > 0) {
        svg.setAttribute("viewBox", `0 0 ${width} ${height}`);
        box.style.setProperty("--ratio", `${width} / ${height}`);
      }
    }
  };

  const draw = async (box) => {
    const { data, layout } = JSON.parse(document.getElementById(`${box.id}-data`).textContent);
    if (touch) layout.dragmode = false; // a finger on a figure scrolls the page
    await Plotly.newPlot(box, data, layout, config);
    box.on("plotly_afterplot", () => frame(box));
    frame(box);
    box.classList.add("drawn");
  };

  const drawAll = async () => {
    for (const box of document.querySelectorAll(".plot")) {
      try {
        await draw(box);
      } catch (error) {
        box.textContent = "This figure could not be drawn; the words below say what it shows.";
        console.error(box.id, error);
      }
    }
    document.documentElement.dataset.drawn = document.querySelectorAll(".plot.drawn").length;
  };

  for (const part of document.querySelectorAll("details")) {
    part.dataset.open = part.open;
    addEventListener("beforeprint", () => { part.open = true; });
    addEventListener("afterprint", () => { part.open = part.dataset.open === "true"; });
  }
  drawAll();
})();
