// Tables that are sorted by a click on a heading.

function sortKey(cell) {
  const text = (cell.firstChild ? cell.firstChild.textContent : "").trim();
  // The number that the text begins with; dates and times are sorted as words are.
  const [, number] = /^[<>≤≥±]*(-?[\d.]+(?:e[-+]?\d+)?)(?![-:\d.])/.exec(text.replace(/[,\s]/g, "")) || [];
  return Number.isNaN(Number.parseFloat(number)) ? text : Number.parseFloat(number);
}

function compare(a, b) {
  if (typeof a === typeof b) return typeof a === "number" ? a - b : a.localeCompare(b, "en", { numeric: true });
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

document.querySelectorAll("table").forEach(makeSortable);
