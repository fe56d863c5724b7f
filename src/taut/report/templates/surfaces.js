// Surfaces that turn with the mouse, a finger or the arrow keys; all of a page turn together.

const VIRIDIS = [[68, 1, 84], [59, 82, 139], [33, 145, 140], [94, 201, 98], [253, 231, 37]];
const VIEW = { turn: -0.5, tilt: 0.6 };
const surfaces = [];

function colour(share) {
  const place = Math.min(0.9999, Math.max(0, share)) * (VIRIDIS.length - 1), first = Math.floor(place);
  const mixed = VIRIDIS[first].map((c, i) => Math.round(c + (place - first) * (VIRIDIS[first + 1][i] - c)));
  return `rgb(${mixed.join(" ")})`;
}

class Surface {
  constructor(box, data) {
    Object.assign(this, data, { box });
    this.canvas = document.createElement("canvas");
    this.canvas.className = "surface";
    this.canvas.tabIndex = 0;
    this.canvas.setAttribute("role", "application");
    this.canvas.setAttribute("aria-label", `${box.querySelector("img").alt} Arrow keys turn it.`);
    box.append(this.canvas);
    let last = null;
    this.canvas.addEventListener("pointerdown", event => {
      this.canvas.setPointerCapture(event.pointerId);
      last = [event.clientX, event.clientY];
    });
    this.canvas.addEventListener("pointermove", event => {
      if (last === null) return;
      turn((event.clientX - last[0]) / 120, (event.clientY - last[1]) / 120);
      last = [event.clientX, event.clientY];
    });
    for (const name of ["pointerup", "pointercancel"]) this.canvas.addEventListener(name, () => { last = null; });
    this.canvas.addEventListener("keydown", event => {
      const move = { ArrowLeft: [-0.1, 0], ArrowRight: [0.1, 0], ArrowUp: [0, -0.1], ArrowDown: [0, 0.1] }[event.key];
      if (!move) return;
      event.preventDefault();
      turn(...move);
    });
  }

  draw() {
    const { canvas, heights, extent, low, high } = this, [left, right, bottom, top] = extent;
    canvas.width = canvas.clientWidth * (window.devicePixelRatio || 1);
    canvas.height = 0.6 * canvas.width;
    const pen = canvas.getContext("2d"), width = right - left, depth = top - bottom;
    const [cos, sin, up, back] = [Math.cos(VIEW.turn), Math.sin(VIEW.turn), Math.cos(VIEW.tilt), Math.sin(VIEW.tilt)];
    const height = (width * Math.abs(sin) + depth * Math.abs(cos)) * back + (high - low) * up;
    const scale = Math.min(canvas.width / Math.hypot(width, depth), canvas.height / height) / 1.06;
    const [rows, columns] = [heights.length, heights[0].length];
    const points = heights.map((line, i) => line.map((z, j) => {
      const x = left + ((right - left) * j) / (columns - 1) - (left + right) / 2;
      const y = bottom + ((top - bottom) * i) / (rows - 1) - (bottom + top) / 2;
      const far = x * sin + y * cos, tall = z - (low + high) / 2;
      return [canvas.width / 2 + scale * (x * cos - y * sin), canvas.height / 2 - scale * (far * back + tall * up), far];
    }));
    const cells = [];
    for (let i = 0; i + 1 < rows; i++) {
      for (let j = 0; j + 1 < columns; j++) cells.push([points[i][j][2] + points[i + 1][j + 1][2], i, j]);
    }
    cells.sort((a, b) => b[0] - a[0]); // the farthest first, so that near ones cover them
    for (const [, i, j] of cells) {
      pen.beginPath();
      for (const [a, b] of [[i, j], [i, j + 1], [i + 1, j + 1], [i + 1, j]]) pen.lineTo(points[a][b][0], points[a][b][1]);
      pen.closePath();
      const mean = (heights[i][j] + heights[i + 1][j + 1] + heights[i][j + 1] + heights[i + 1][j]) / 4;
      pen.fillStyle = pen.strokeStyle = colour((mean - low) / (high - low));
      pen.fill();
      pen.stroke();
    }
  }
}

function turn(across, down) {
  VIEW.turn += across;
  VIEW.tilt = Math.min(Math.PI / 2, Math.max(0, VIEW.tilt + down));
  surfaces.forEach(surface => surface.draw());
}

/** Buttons that show the surfaces of a section, or its maps as they are without scripts. */
function makeSwitch(pictures) {
  const button = document.createElement("button"), line = document.createElement("p");
  button.type = "button";
  line.append(button, " ");
  const update = () => {
    const turned = pictures.classList.contains("turned");
    button.textContent = turned ? "Show maps" : "Show surfaces";
    line.lastChild.textContent = turned ? " Drag a surface, or use the arrow keys, to turn all of them." : " ";
    if (turned) turn(0, 0);
  };
  button.addEventListener("click", () => {
    pictures.classList.toggle("turned");
    update();
  });
  pictures.classList.add("turned");
  pictures.before(line);
  return update;
}

for (const box of document.querySelectorAll(".picture:has(script)")) {
  const data = JSON.parse(box.querySelector("script").textContent);
  if (data.heights) surfaces.push(new Surface(box, data));
}
const groups = new Set(surfaces.map(surface => surface.box.closest(".pictures")));
groups.forEach(pictures => makeSwitch(pictures)());
window.addEventListener("resize", () => turn(0, 0));
