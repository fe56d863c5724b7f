// Tables that are sorted by a click on a heading, and the slider of certified accuracy.

function sortKey(cell) {
  const text = (cell.firstChild ? cell.firstChild.textContent : "").trim();
  const number = Number.parseFloat(text.replace(/[,\s]/g, "").replace(/^[<>≤≥±]+/, ""));
  return Number.isNaN(number) ? text : number;
}

function compare(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b);
  return typeof a === "number" ? -1 : 1; // numbers before words
}

function makeSortable(table) {
  const body = table.tBodies[0];
  if (body.rows.length < 3) return;
  [...table.tHead.rows[0].cells].forEach((heading, column) => {
    if (!heading.textContent.trim()) return;
    const button = document.createElement("button");
    button.type = "button";
    button.className = "sort";
    button.append(...heading.childNodes);
    heading.append(button);
    button.addEventListener("click", () => {
      const rising = heading.getAttribute("aria-sort") !== "ascending";
      for (const other of heading.parentNode.cells) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", rising ? "ascending" : "descending");
      const rows = [...body.rows].sort(
        (a, b) => (rising ? 1 : -1) * compare(sortKey(a.cells[column]), sortKey(b.cells[column])));
      body.append(...rows);
    });
  });
}

function makeSlider(box) {
  const { radii, total } = JSON.parse(box.querySelector("script").textContent);
  const [input, output] = [box.querySelector("input"), box.querySelector("output")];
  const reach = radii.length ? radii[radii.length - 1] : 1;
  const update = () => {
    const radius = ((reach * input.value) / 1000).toPrecision(3); // what is counted is what is shown
    const certified = radii.filter(each => each > Number(radius)).length;
    const percent = (Math.floor((1000 * certified) / total) / 10).toFixed(1); // never more than proven
    output.textContent = `${radius}: ${percent} % certified`;
  };
  input.addEventListener("input", update);
  update();
}

document.querySelectorAll("table").forEach(makeSortable);
document.querySelectorAll(".slider").forEach(makeSlider);
