"use strict";
for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => sort(table, heads, column));
  });
}
function sort(table, heads, column) {
  const head = heads[column];
  const falling = head.getAttribute("aria-sort") === "ascending";
  heads.forEach((other) => other.removeAttribute("aria-sort"));
  head.setAttribute("aria-sort", falling ? "descending" : "ascending");
  const key = (row) => row.cells[column].dataset.sort ?? row.cells[column].textContent;
  const order = (a, b) => {
    const [x, y] = [key(a), key(b)];
    if (x === "" || y === "") return (x === "") - (y === ""); // unknown goes last, always
    const apart = isNaN(x) || isNaN(y) ? x.localeCompare(y) : x - y;
    return falling ? -apart : apart;
  };
  table.tBodies[0].append(...[...table.tBodies[0].rows].sort(order));
}
