"use strict";
// Tables that sort on a click on a head, and the meaning of a word where it stands.

for (const table of document.querySelectorAll("table.sortable")) {
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    if (head.dataset.tip) {
      button.dataset.tip = head.dataset.tip;
      head.removeAttribute("data-tip");
    }
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

// One tip for all: under the pointer, or under what has the focus.
const tip = document.createElement("div");
tip.id = "tip";
tip.setAttribute("role", "status");
tip.hidden = true;
document.body.append(tip);
function showTip(event) {
  const of = event.target.closest?.("[data-tip]");
  tip.hidden = !of;
  if (!of) return;
  tip.textContent = of.dataset.tip;
  const box = of.getBoundingClientRect();
  const x = event.clientX > 0 ? event.clientX : box.left + box.width / 2;
  const wide = document.documentElement.clientWidth;
  const left = Math.min(Math.max(8, x - tip.offsetWidth / 2), wide - tip.offsetWidth - 8);
  const below = box.bottom + 6;
  const fits = below + tip.offsetHeight < innerHeight;
  tip.style.left = `${Math.max(4, left)}px`;
  tip.style.top = `${fits ? below : Math.max(4, box.top - tip.offsetHeight - 6)}px`;
}
document.addEventListener("pointerover", showTip);
document.addEventListener("focusin", showTip);
document.addEventListener("focusout", () => { tip.hidden = true; });
document.addEventListener("scroll", () => { tip.hidden = true; }, { passive: true, capture: true });
document.addEventListener("keydown", (event) => { if (event.key === "Escape") tip.hidden = true; });
for (const one of document.querySelectorAll("th[data-tip]")) one.tabIndex = 0;
