// A drawing context that writes SVG: as much of the canvas's as axes, marks and legends use.

const safe = (text) => String(text).replace(/[&<>"]/g, (sign) => `&#${sign.charCodeAt(0)};`);
const n = (x) => Number(x.toFixed(2));

export class SvgContext {
  constructor(width, height) {
    Object.assign(this, { width, height, parts: [], path: "", kept: [], dash: [] });
    this.state = { turn: "", depth: 0 };
    Object.assign(this, { strokeStyle: "#000", fillStyle: "#000", lineWidth: 1, globalAlpha: 1, font: "11px sans-serif", textAlign: "left", textBaseline: "alphabetic" });
  }

  save() { this.kept.push([this.state.turn, this.globalAlpha]); }

  restore() { [this.state.turn, this.globalAlpha] = this.kept.pop(); }

  translate(x, y) { this.state.turn += `translate(${n(x)} ${n(y)})`; }

  rotate(angle) { this.state.turn += `rotate(${n((angle * 180) / Math.PI)})`; }

  clip() { this.path = ""; } // pictures are cut at their frame

  setLineDash(dash) { this.dash = dash; }

  beginPath() { this.path = ""; }

  closePath() { this.path += "Z"; }

  moveTo(x, y) { this.path += `M${n(x)} ${n(y)}`; }

  lineTo(x, y) { this.path += `${this.path ? "L" : "M"}${n(x)} ${n(y)}`; }

  rect(x, y, width, height) { this.path += `M${n(x)} ${n(y)}h${n(width)}v${n(height)}h${n(-width)}Z`; }

  arc(x, y, r) { this.path += `M${n(x - r)} ${n(y)}a${n(r)} ${n(r)} 0 1 0 ${n(2 * r)} 0a${n(r)} ${n(r)} 0 1 0 ${n(-2 * r)} 0`; }

  add(tag, attributes, text = "") {
    const turn = this.state.turn ? ` transform="${this.state.turn}"` : "";
    const alpha = this.globalAlpha < 1 ? ` opacity="${this.globalAlpha}"` : "";
    const each = Object.entries(attributes).map(([name, value]) => ` ${name}="${safe(value)}"`).join("");
    this.parts.push(text ? `<${tag}${each}${turn}${alpha}>${safe(text)}</${tag}>` : `<${tag}${each}${turn}${alpha}/>`);
  }

  stroke() {
    const dash = this.dash.length ? { "stroke-dasharray": this.dash.join(" ") } : {};
    this.add("path", { d: this.path, fill: "none", stroke: this.strokeStyle, "stroke-width": this.lineWidth, ...dash });
  }

  fill() { this.add("path", { d: this.path, fill: this.fillStyle }); }

  fillRect(x, y, width, height) { this.add("rect", { x: n(x), y: n(y), width: n(width), height: n(height), fill: this.fillStyle }); }

  fillText(text, x, y) {
    const [, weight, size] = /^(?:(\d+) )?([\d.]+)px/.exec(this.font) || [null, "", "11"];
    const anchor = { center: "middle", right: "end" }[this.textAlign] || "start";
    this.add("text", { x: n(x), y: n(y), fill: this.fillStyle, "font-size": size, "text-anchor": anchor, ...(weight ? { "font-weight": weight } : {}) }, text);
  }

  raw(text) { this.parts.push(text); }

  toString() {
    const font = "system-ui, -apple-system, 'Segoe UI', Roboto, 'Helvetica Neue', Arial, sans-serif";
    return `<svg xmlns="http://www.w3.org/2000/svg" width="${this.width}" height="${this.height}" viewBox="0 0 ${this.width} ${this.height}" font-family="${font}">${this.parts.join("\n")}</svg>\n`;
  }
}
