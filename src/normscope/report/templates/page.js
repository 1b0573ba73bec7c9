"use strict";
const number = (cell) => parseFloat(cell.textContent.replaceAll(",", ""));
const compare = (a, b) => a.textContent.localeCompare(b.textContent, "en", { numeric: true });

function sort(table, column, sign, numeric) {
  const rows = [...table.tBodies[0].rows].sort((a, b) => {
    const [x, y] = [a.cells[column], b.cells[column]];
    if (!numeric) return sign * compare(x, y);
    const [p, q] = [number(x), number(y)];
    if (isNaN(p) || isNaN(q)) return isNaN(p) - isNaN(q); // what has no number stays below
    return sign * (p - q);
  });
  table.tBodies[0].append(...rows);
}

for (const table of document.querySelectorAll("table")) {
  const heads = [...table.tHead.rows[0].cells];
  for (const [column, head] of heads.entries()) {
    const [text, button] = [document.createElement("span"), document.createElement("button")];
    text.textContent = button.textContent = head.textContent;
    head.replaceChildren(text, button); // the text for print, where a button is not repeated
    button.addEventListener("click", () => {
      const up = head.getAttribute("aria-sort") !== "ascending";
      for (const other of heads) other.removeAttribute("aria-sort");
      head.setAttribute("aria-sort", up ? "ascending" : "descending");
      sort(table, column, up ? 1 : -1, head.classList.contains("number"));
    });
  }
}
addEventListener("beforeprint", () => {
  for (const fold of document.querySelectorAll("details")) fold.open = true;
});
