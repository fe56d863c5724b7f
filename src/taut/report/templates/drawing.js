// Runs a dense network on what the reader draws, in float64, with a certified radius.

const BLOCK = 4; // side of the square of drawn cells whose mean is one pixel of the network
const BRUSH = 0.055; // radius of the brush, as a share of the drawing's width
const ROUNDED = 1e-9; // what is taken off a radius, far more than float64 can lose here
const ROUNDS = 40; // steps of the search for a nearby image with another prediction
const PAUSE = 80; // milliseconds without a stroke after which the search starts

function decode(text) {
  const bytes = Uint8Array.from(atob(text), letter => letter.charCodeAt(0));
  return new Float64Array(bytes.buffer);
}

function makeLayer(layer) {
  if (layer.kind !== "linear") return layer;
  return { kind: "linear", weight: decode(layer.weight), bias: decode(layer.bias) };
}

/** Output of a layer, and the function that maps a gradient of its output to one of its input. */
function apply(layer, x) {
  if (layer.kind === "linear") {
    const { weight, bias } = layer, n = x.length;
    const y = bias.map((b, i) => {
      let sum = b;
      for (let j = 0; j < n; j++) sum += weight[i * n + j] * x[j];
      return sum;
    });
    const pull = g => {
      const back = new Float64Array(n);
      g.forEach((gi, i) => { for (let j = 0; j < n; j++) back[j] += gi * weight[i * n + j]; });
      return back;
    };
    return [y, pull];
  }
  if (layer.kind === "sort") {
    const size = layer.size || x.length, groups = x.length / size;
    const source = new Uint32Array(x.length);
    for (let group = 0; group < groups; group++) {
      const members = Array.from({ length: size }, (_, j) => group + j * groups);
      members.sort((a, b) => layer.order * (x[a] - x[b]));
      members.forEach((from, j) => { source[group + j * groups] = from; });
    }
    const pull = g => {
      const back = new Float64Array(x.length);
      source.forEach((from, to) => { back[from] += g[to]; });
      return back;
    };
    return [x.map((_, to) => x[source[to]]), pull];
  }
  const slope = {
    scale: () => layer.factor,
    abs: value => Math.sign(value),
    relu: value => (value > 0 ? 1 : 0),
  }[layer.kind];
  return [x.map(v => slope(v) * v), g => g.map((gi, i) => gi * slope(x[i]))];
}

class Network {
  constructor(data) {
    Object.assign(this, data, { layers: data.layers.map(makeLayer) });
  }

  /** Logits, and the function that maps a gradient of the logits to one of the image. */
  run(image) {
    const pulls = [];
    let x = Float64Array.from(image);
    for (const layer of this.layers) {
      const [y, pull] = apply(layer, x);
      pulls.unshift(pull);
      x = y;
    }
    return [x, g => pulls.reduce((back, pull) => pull(back), g)];
  }

  predict(image) {
    const [logits] = this.run(image);
    return logits.indexOf(Math.max(...logits));
  }

  /** Prediction and certified radius: no smaller change of the image alters the prediction. */
  certify(image) {
    const [logits] = this.run(image);
    const prediction = logits.indexOf(Math.max(...logits));
    const radii = this.rates[prediction]
      .map((rate, i) => (i === prediction ? Infinity : (logits[prediction] - logits[i]) / rate));
    return { prediction, logits, radius: Math.max(0, Math.min(...radii) - ROUNDED) };
  }

  distance(a, b) {
    const moved = a.map((value, i) => Math.abs(value - b[i]));
    return this.norm === "linf" ? Math.max(...moved) : Math.hypot(...moved);
  }

  /** The nearest image with another prediction that Newton steps towards each class find. */
  nearest(image, prediction) {
    let best = null;
    for (let target = 0; target < this.classes.length; target++) {
      if (target === prediction) continue;
      const found = this.towards(Float64Array.from(image), prediction, target);
      if (found === null) continue;
      const distance = this.distance(found, image);
      if (best === null || distance < best.distance) best = { image: found, distance };
    }
    return best;
  }

  towards(start, prediction, target) {
    let x = start;
    for (let round = 0; round < ROUNDS; round++) {
      const [logits, pull] = this.run(x);
      const lead = logits[prediction] - logits[target];
      if (lead < 0) return this.shorten(start, x, prediction);
      const gradient = pull(logits.map((_, i) => (i === prediction) - (i === target)));
      x = x.map((value, i) => value - this.direction(gradient, i) * (lead + 1e-3) * 1.02);
      x = x.map(value => Math.min(1, Math.max(0, value)));
    }
    return null;
  }

  /** Entry of the shortest step, in the norm, that lowers a linear function by 1. */
  direction(gradient, i) {
    if (this.norm === "linf") return Math.sign(gradient[i]) / gradient.reduce((s, g) => s + Math.abs(g), 1e-300);
    return gradient[i] / gradient.reduce((s, g) => s + g * g, 1e-300);
  }

  /** The image nearest to `start`, on the way from it, whose prediction differs. */
  shorten(start, end, prediction) {
    let low = 0, high = 1;
    const between = share => start.map((value, i) => value + share * (end[i] - value));
    for (let round = 0; round < 30; round++) {
      const middle = (low + high) / 2;
      if (this.predict(between(middle)) === prediction) low = middle; else high = middle;
    }
    return between(high);
  }
}

class Board {
  constructor(box) {
    this.network = new Network(JSON.parse(box.querySelector("script").textContent));
    this.board = box.querySelector(".board");
    this.views = { seen: box.querySelector(".seen"), changed: box.querySelector(".changed") };
    this.answer = box.querySelector(".answer");
    this.columns = this.network.width * BLOCK;
    this.rows = this.network.height * BLOCK;
    [this.board.width, this.board.height] = [this.columns, this.rows];
    for (const view of Object.values(this.views)) {
      [view.width, view.height] = [this.network.width, this.network.height];
    }
    this.shown = -1;
    this.listen(box);
    this.example();
  }

  listen(box) {
    let last = null;
    this.board.addEventListener("pointerdown", event => {
      if (!event.isPrimary || event.button !== 0) return; // a second finger, another button
      this.board.setPointerCapture(event.pointerId);
      last = this.place(event);
      this.stroke(last, last);
    });
    this.board.addEventListener("pointermove", event => {
      if (last === null || !event.isPrimary) return;
      const here = this.place(event);
      this.stroke(last, here);
      last = here;
    });
    for (const name of ["pointerup", "pointercancel"]) {
      this.board.addEventListener(name, event => { if (event.isPrimary) last = null; });
    }
    let pen = [0.5, 0.5]; // of the arrow keys; with Shift it moves without drawing
    const moves = { ArrowLeft: [-1, 0], ArrowRight: [1, 0], ArrowUp: [0, -1], ArrowDown: [0, 1] };
    this.board.addEventListener("keydown", event => {
      const move = moves[event.key];
      if (!move) return;
      event.preventDefault();
      const next = pen.map((share, axis) => Math.min(1, Math.max(0, share + 0.05 * move[axis])));
      if (!event.shiftKey) this.stroke(pen, next);
      pen = next;
    });
    box.querySelector(".clear").addEventListener("click", () => this.clear());
    box.querySelector(".example").addEventListener("click", () => this.example());
  }

  /** Shows the test image of the next class; a stroke then starts a new drawing. */
  example() {
    this.shown = (this.shown + 1) % this.network.examples.length;
    this.strokes = [];
    const image = this.network.examples[this.shown];
    this.show(image, this.raster([]).map((_, cell) => image[this.pixel(cell)]));
  }

  /** Where the pointer is, or the nearest place on the board, as shares of its width and height. */
  place(event) {
    const frame = this.board.getBoundingClientRect();
    const shares = [(event.clientX - frame.left) / frame.width, (event.clientY - frame.top) / frame.height];
    return shares.map(share => Math.min(1, Math.max(0, share)));
  }

  clear() {
    clearTimeout(this.search);
    this.strokes = [];
    this.result = null;
    this.image = new Float64Array(this.network.width * this.network.height);
    this.paint(this.raster([]));
    this.answer.textContent = "Nothing is drawn yet.";
  }

  stroke(a, b) {
    this.strokes.push([a, b]);
    this.show(this.means(this.raster(this.fitted())), this.raster(this.strokes));
  }

  /** The strokes moved and scaled so that they are as large as test images are, in their place. */
  fitted() {
    const [xs, ys] = [0, 1].map(axis => this.strokes.flat().map(point => point[axis]));
    const middle = values => (Math.min(...values) + Math.max(...values)) / 2;
    const extent = values => Math.max(...values) - Math.min(...values) + 2 * BRUSH;
    const { size, x, y } = this.network.frame;
    const scale = Math.min(4, size / Math.max(extent(xs), extent(ys)));
    const move = ([u, v]) => [x + scale * (u - middle(xs)), y + scale * (v - middle(ys))];
    return this.strokes.map(segment => segment.map(move));
  }

  /** Cells whose centres lie within the brush around a segment: 1, all others 0. */
  raster(segments) {
    const cells = new Float64Array(this.columns * this.rows), reach = BRUSH * this.columns;
    const span = (start, step, size) => [
      Math.max(0, Math.floor(Math.min(start, start + step) - reach)),
      Math.min(size, Math.ceil(Math.max(start, start + step) + reach)),
    ];
    for (const [from, to] of segments) {
      const a = [from[0] * this.columns, from[1] * this.rows];
      const [dx, dy] = [to[0] * this.columns - a[0], to[1] * this.rows - a[1]];
      const length = dx * dx + dy * dy || 1;
      const [[left, right], [top, bottom]] = [span(a[0], dx, this.columns), span(a[1], dy, this.rows)];
      for (let row = top; row < bottom; row++) {
        for (let column = left; column < right; column++) {
          const [x, y] = [column + 0.5 - a[0], row + 0.5 - a[1]];
          const along = Math.min(1, Math.max(0, (x * dx + y * dy) / length));
          if (Math.hypot(x - along * dx, y - along * dy) <= reach) cells[row * this.columns + column] = 1;
        }
      }
    }
    return cells;
  }

  /** The pixel that a cell is part of. */
  pixel(cell) {
    const row = Math.floor(cell / this.columns / BLOCK);
    return row * this.network.width + Math.floor((cell % this.columns) / BLOCK);
  }

  means(cells) {
    const image = new Float64Array(this.network.width * this.network.height);
    cells.forEach((ink, i) => { image[this.pixel(i)] += ink / (BLOCK * BLOCK); });
    return image;
  }

  /** Classifies an image and shows the answer, with `cells` on the board; the search waits for a pause. */
  show(image, cells) {
    const { network } = this;
    this.image = Float64Array.from(image);
    this.result = network.certify(this.image);
    this.paint(cells);
    const norm = network.norm === "linf" ? "L-inf" : "L2";
    const radius = Math.floor(this.result.radius * 1000) / 1000;
    const strong = document.createElement("strong");
    strong.textContent = `Prediction: ${network.classes[this.result.prediction]}. `;
    const proven = radius > 0
      ? `No change of ${norm} length below ${radius.toFixed(3)} alters it: that is proven. `
      : "Its certified radius is below 0.001. ";
    this.answer.replaceChildren(strong, proven);
    clearTimeout(this.search);
    this.search = setTimeout(() => this.showNearest(), PAUSE);
  }

  showNearest() {
    const { network } = this, near = network.nearest(this.image, this.result.prediction);
    if (near) draw(this.views.changed, near.image);
    this.answer.append(near
      ? `A change of length ${(Math.ceil(near.distance * 1000) / 1000).toFixed(3)} was found that turns it into ${network.classes[network.predict(near.image)]}.`
      : "No change that alters it was found.");
  }

  paint(cells) {
    draw(this.board, cells);
    draw(this.views.seen, this.image);
    draw(this.views.changed, this.image.map(() => 0));
  }
}

function draw(canvas, values) {
  const context = canvas.getContext("2d");
  const pixels = context.createImageData(canvas.width, canvas.height);
  values.forEach((value, i) => pixels.data.set([0, 0, 0, 255].map((c, k) => (k < 3 ? 255 - 255 * value : c)), 4 * i));
  context.putImageData(pixels, 0, 0);
}

for (const box of document.querySelectorAll(".drawing")) box.board = new Board(box);
