// Under every page that the search finds: the sentence that has most of the words asked for.
// The sentences come with the site (excerpts.js), since a page on a disk may fetch nothing.
"use strict";

const asked = (new URLSearchParams(location.search).get("q") || "").toLowerCase();
const words = asked.split(/[^\p{L}\p{N}_]+/u).filter((word) => word.length > 1);
const stems = words.map((word) => (word.length > 5 ? word.slice(0, -2) : word.replace(/s$/, "")));

function excerpt(page) {
  const sentences = Excerpts[page] || [];
  const count = (text) => {
    const lower = text.toLowerCase();
    return stems.filter((stem) => lower.includes(stem)).length + (lower.includes(asked) ? 1 : 0);
  };
  let best = sentences[0] || "";
  for (const sentence of sentences) if (count(sentence) > count(best)) best = sentence;
  return best;
}

function mark(text) {
  const line = document.createElement("p");
  line.className = "context";
  const found = stems.map((stem) => stem.replace(/[.*+?^${}()|[\]\\]/g, "\\$&"));
  const parts = found.length ? text.split(new RegExp(`((?:${found.join("|")})[\\p{L}]*)`, "giu")) : [text];
  parts.forEach((part, k) => {
    const piece = k % 2 ? document.createElement("b") : document.createTextNode(part);
    if (k % 2) piece.textContent = part;
    line.append(piece);
  });
  return line;
}

const listed = new Set();
new MutationObserver((changes) => {
  for (const change of changes)
    for (const item of change.addedNodes) {
      if (item.tagName !== "LI") continue;
      const [file, anchor] = item.querySelector("a").getAttribute("href").split("#");
      const page = file.replace(/\.html$/, "");
      const again = listed.has(page);
      if (again && (anchor || "index-").startsWith("index-")) {
        item.remove();
        continue;
      }
      listed.add(page);
      if (!again && !item.classList.contains("kind-object")) item.append(mark(excerpt(page)));
    }
}).observe(document.getElementById("search-results"), { childList: true, subtree: true });
