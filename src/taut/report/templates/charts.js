// Values of a chart at the pointer or at the arrow keys, and the slider of certified accuracy.

/** Value of a line at x; between two points of a bound, the weaker one. Null outside the line. */
function valueAt({ x, y, steps, bound }, at) {
  const after = x.findIndex(each => each >= at);
  if (after < 0 || (after === 0 && x[0] > at)) return null;
  if (x[after] === at || after === 0) return y[after];
  const [a, b] = [y[after - 1], y[after]];
  if (steps) return a;
  if (bound) return bound === "lower" ? Math.min(a, b) : Math.max(a, b);
  return Number((a + ((b - a) * (at - x[after - 1])) / (x[after] - x[after - 1])).toPrecision(4));
}

class Chart {
  constructor(box, data) {
    Object.assign(this, { box, data, image: box.querySelector("img") });
    this.share = 0.5;
    this.words = document.createElement("output");
    this.rules = [0, 1].map(() => document.createElement("i"));
    box.append(...this.rules, this.words);
    box.tabIndex = 0;
    box.setAttribute("role", "group");
    box.setAttribute("aria-label", "Values of the chart: move the pointer over it, or use the arrow keys");
    box.addEventListener("pointermove", event => {
      const { left, width } = this.frame();
      this.show((event.clientX - box.getBoundingClientRect().left - left) / width);
    });
    box.addEventListener("pointerleave", () => this.hide());
    box.addEventListener("blur", () => this.hide());
    box.addEventListener("keydown", event => {
      const step = { ArrowLeft: -0.01, ArrowRight: 0.01 }[event.key];
      if (!step) return;
      event.preventDefault();
      this.show(Math.min(1, Math.max(0, this.share + step)));
    });
  }

  /** Place of the axes within the box, in pixels. */
  frame() {
    const style = getComputedStyle(this.image), inset = parseFloat(style.paddingLeft) + parseFloat(style.borderLeftWidth);
    const [wide, high] = [this.image.offsetWidth - 2 * inset, this.image.offsetHeight - 2 * inset];
    const [x, y, width, height] = this.data.box;
    return { left: inset + x * wide, top: inset + y * high, width: width * wide, height: height * high };
  }

  draw(rule, share) {
    const { left, top, width, height } = this.frame();
    Object.assign(rule.style, { display: "block", left: `${left + share * width}px`, top: `${top}px`, height: `${height}px` });
  }

  show(share) {
    if (share < 0 || share > 1) return this.hide();
    this.share = share;
    const [low, high] = this.data.limits;
    const exact = this.data.log ? low * (high / low) ** share : low + share * (high - low);
    const at = Number(exact.toPrecision(3)); // what is read is what is shown
    const found = this.data.lines.map(line => [line.name, valueAt(line, at)]).filter(([, y]) => y !== null);
    this.draw(this.rules[0], share);
    this.words.textContent = [`${this.data.label || "x"} ${at}`, ...found.map(([name, y]) => `${name}: ${y}`)].join("\n");
    this.words.style.display = "block";
    const { left, width } = this.frame(), spot = left + share * width;
    this.words.style.left = share < 0.5 ? `${spot + 8}px` : "";
    this.words.style.right = share < 0.5 ? "" : `${this.box.offsetWidth - spot + 8}px`;
  }

  hide() {
    this.rules[0].style.display = this.words.style.display = "none";
  }

  /** Keeps a line at x. */
  mark(x) {
    const [low, high] = this.data.limits;
    if (!this.data.log) this.draw(this.rules[1], Math.min(1, (x - low) / (high - low)));
  }
}

function makeSlider(box) {
  const { radii, total } = JSON.parse(box.querySelector("script").textContent);
  const [input, output] = [box.querySelector("input"), box.querySelector("output")];
  const { chart } = box.closest(".body").querySelector(".picture") || {};
  const reach = radii.length ? radii[radii.length - 1] : 1;
  const update = () => {
    const radius = ((reach * input.value) / 1000).toPrecision(3); // what is counted is what is shown
    const certified = radii.filter(each => each > Number(radius)).length;
    // Never more than proven; at 0 it is the clean accuracy, as measured.
    const round = Number(radius) > 0 ? Math.floor : Math.round;
    const percent = (round((1000 * certified) / total) / 10).toFixed(1);
    output.textContent = `${radius}: ${percent} % certified`;
    if (chart) chart.mark(Number(radius));
  };
  box.hidden = false;
  input.addEventListener("input", update);
  window.addEventListener("resize", update);
  window.addEventListener("load", update);
  update();
}

for (const box of document.querySelectorAll(".picture:has(script)")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  if (data.lines) box.chart = new Chart(box, data);
}
document.querySelectorAll(".slider").forEach(makeSlider);
