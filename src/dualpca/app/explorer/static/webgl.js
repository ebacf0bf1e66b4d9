// Many points at once: one buffer for places, one for colours and forms, one for what is selected.

const VERTEX = `
attribute vec2 place;
attribute vec4 colour;
attribute float state;
uniform vec2 scale;
uniform vec2 shift;
uniform float size;
uniform float turn;
varying vec3 shade;
varying float form;
varying float level;
void main() {
  shade = colour.rgb;
  form = colour.a * 255.0;
  level = state;
  bool mine = turn > 0.5 ? state > 1.5 && state < 2.5 : state < 1.5; // 3 is hidden
  gl_Position = mine ? vec4(place * scale + shift, 0.0, 1.0) : vec4(2.0, 2.0, 2.0, 1.0);
  gl_PointSize = size * (state > 1.5 ? 1.35 : 1.0) * (form > 0.5 ? 1.12 : 1.0);
}`;

const FRAGMENT = `
precision mediump float;
varying vec3 shade;
varying float form;
varying float level;
uniform float alpha;
uniform float dimmed;
uniform float edge;
uniform vec3 rim;
void main() {
  vec2 p = 2.0 * gl_PointCoord - 1.0;
  float d;
  if (form < 0.5) d = length(p);
  else if (form < 1.5) d = max(p.y / 0.8, 1.0 + 0.5 * (1.8 * abs(p.x) - p.y - 1.0));
  else if (form < 2.5) d = max(abs(p.x), abs(p.y)) * 1.18;
  else d = abs(p.x) + abs(p.y);
  float cover = 1.0 - smoothstep(1.0 - edge, 1.0, d);
  if (cover <= 0.0) discard;
  vec3 c = shade;
  float a = alpha;
  if (level > 1.5) {
    c = mix(c, rim, smoothstep(0.62 - edge, 0.62, d));
    a = 1.0;
  } else if (level > 0.5) a = dimmed;
  gl_FragColor = vec4(c, 1.0) * a * cover;
}`;

function compile(gl, kind, text) {
  const shader = gl.createShader(kind);
  gl.shaderSource(shader, text);
  gl.compileShader(shader);
  if (!gl.getShaderParameter(shader, gl.COMPILE_STATUS)) throw new Error(gl.getShaderInfoLog(shader) || "shader");
  return shader;
}

export class Points {
  constructor(canvas) {
    this.canvas = canvas;
    this.n = 0;
    this.data = { places: new Float32Array(0), colours: new Uint8Array(0), states: new Uint8Array(0) };
    this.gl = canvas.getContext("webgl", { antialias: false, premultipliedAlpha: true, alpha: true });
    if (this.gl) {
      canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
      canvas.addEventListener("webglcontextrestored", () => {
        this.prepare();
        for (const name of Object.keys(this.data)) this.upload(name, this.data[name]);
        this.onrestored?.();
      });
      this.prepare();
    } else this.flat = canvas.getContext("2d");
  }

  prepare() {
    const { gl } = this;
    const program = gl.createProgram();
    gl.attachShader(program, compile(gl, gl.VERTEX_SHADER, VERTEX));
    gl.attachShader(program, compile(gl, gl.FRAGMENT_SHADER, FRAGMENT));
    gl.linkProgram(program);
    if (!gl.getProgramParameter(program, gl.LINK_STATUS)) throw new Error(gl.getProgramInfoLog(program) || "program");
    gl.useProgram(program);
    const names = ["scale", "shift", "size", "turn", "alpha", "dimmed", "edge", "rim"];
    const places = new Map(names.map((name) => [name, gl.getUniformLocation(program, name)]));
    this.at = (name) => places.get(name);
    const form = { places: ["place", 2, gl.FLOAT, false], colours: ["colour", 4, gl.UNSIGNED_BYTE, true], states: ["state", 1, gl.UNSIGNED_BYTE, false] };
    this.buffers = {};
    for (const [name, [attribute, width, kind, normal]] of Object.entries(form)) {
      const buffer = gl.createBuffer();
      this.buffers[name] = buffer;
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      const place = gl.getAttribLocation(program, attribute);
      gl.enableVertexAttribArray(place);
      gl.vertexAttribPointer(place, width, kind, normal, 0, 0);
    }
    gl.enable(gl.BLEND);
    gl.blendFunc(gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
  }

  upload(name, values) {
    this.data[name] = values;
    if (name === "states") this.above = values.includes(2);
    if (name === "places") this.n = values.length / 2;
    if (!this.gl || this.gl.isContextLost()) return;
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffers[name]);
    this.gl.bufferData(this.gl.ARRAY_BUFFER, values, this.gl.DYNAMIC_DRAW);
  }

  resize(width, height, ratio) {
    this.canvas.width = Math.max(1, Math.round(width * ratio));
    this.canvas.height = Math.max(1, Math.round(height * ratio));
    this.ratio = ratio;
  }

  /** scale and shift lead from data to −1 … 1; size is in CSS pixels. */
  draw({ scale, shift, size, alpha, dimmed, rim }) {
    if (!this.gl) return this.drawFlat({ scale, shift, size, alpha, dimmed, rim });
    const { gl } = this;
    if (gl.isContextLost()) return undefined;
    gl.viewport(0, 0, this.canvas.width, this.canvas.height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT);
    if (!this.n) return undefined;
    gl.uniform2f(this.at("scale"), ...scale);
    gl.uniform2f(this.at("shift"), ...shift);
    gl.uniform1f(this.at("size"), size * this.ratio);
    gl.uniform1f(this.at("edge"), 2 / (size * this.ratio));
    gl.uniform1f(this.at("alpha"), alpha);
    gl.uniform1f(this.at("dimmed"), dimmed);
    gl.uniform3f(this.at("rim"), ...rim);
    for (const turn of this.above ? [0, 1] : [0]) {
      gl.uniform1f(this.at("turn"), turn);
      gl.drawArrays(gl.POINTS, 0, this.n);
    }
    return undefined;
  }

  /** The same without WebGL: squares, slower. */
  drawFlat({ scale, shift, size, alpha, dimmed }) {
    const { width, height } = this.canvas;
    const { places, colours, states } = this.data;
    this.flat.clearRect(0, 0, width, height);
    const side = size * this.ratio * 0.8;
    for (let i = 0; i < this.n; i += 1) {
      if (states[i] > 2) continue;
      const x = ((places[2 * i] * scale[0] + shift[0] + 1) / 2) * width;
      const y = ((1 - places[2 * i + 1] * scale[1] - shift[1]) / 2) * height;
      if (x < 0 || y < 0 || x > width || y > height) continue;
      this.flat.globalAlpha = states[i] > 1 ? 1 : states[i] ? dimmed : alpha;
      this.flat.fillStyle = `rgb(${colours[4 * i]} ${colours[4 * i + 1]} ${colours[4 * i + 2]})`;
      this.flat.fillRect(x - side / 2, y - side / 2, side, side);
    }
  }
}
