"use strict";
// Two kinds of pictures. Rows: a name, a number and marks along an axis, as elements of the page.
// Lines: many points over time or over a quantity, drawn by uPlot.

function element(tag, attributes = {}, ...children) {
  const made = document.createElement(tag);
  for (const [key, value] of Object.entries(attributes)) {
    if (key === "style") for (const [name, of] of Object.entries(value)) made.style.setProperty(name, of);
    else if (value === true) made.setAttribute(key, "");
    else if (value !== false && value !== undefined) made.setAttribute(key, value);
  }
  made.append(...children);
  return made;
}

// An axis: where a value lies, from 0 to 100 %, and its ticks.
const DURATIONS = [1e-3, 1e-2, 0.1, 1, 10, 60, 600, 3600, 14400, 86400, 345600, 1382400, 5529600, 31536000, 315360000];
const STEPS = [
  ...[-9, -8, -7, -6, -5, -4, -3, -2, -1, 0].flatMap((e) => [1, 2, 5].map((m) => m * 10 ** e)),
  10, 20, 60, 120, 300, 600, 1200, ...[1, 2, 4, 6, 12, 24, 48].map((h) => h * 3600),
  ...[5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000].map((d) => d * 86400),
];
function linear(greatest, ticksMax = 6) {
  const step = STEPS.find((s) => greatest / s <= ticksMax) ?? greatest;
  const ticks = [];
  for (let at = 0; at <= greatest; at += step) ticks.push([at, at ? duration(at) : "0"]);
  return { at: (x) => x / greatest * 100, ticks };
}
// Where there are zeros, which a logarithm has not, they lie left of a gap.
function logarithmic(least, greatest, marks, words, ticksMax, hasZero) {
  const [low, high] = [Math.log(least / 1.3), Math.log(greatest * 1.3)];
  let ticks = marks.filter((x) => Math.log(x) >= low && Math.log(x) <= high);
  while (ticks.length > ticksMax) ticks = ticks.filter((_, i) => i % 2 === 0);
  const from = hasZero ? (narrow() ? 18 : 8) : 0;
  return {
    at: (x) => (hasZero && x <= 0 ? 1 : from + (Math.log(Math.max(x, least)) - low) / (high - low) * (100 - from)),
    ticks: [...(hasZero ? [[0, "0"]] : []), ...ticks.map((x) => [x, words(x)])],
  };
}
const narrow = () => document.documentElement.clientWidth < 600;

// rows: {group} | {name, colour, told, value, marks: [{kind, from, to, colour, tip}]}
function drawRows(into, axis, list, key = []) {
  const grid = axis.ticks.map(([x, words]) => element("i", { class: "gridline", style: { left: `${axis.at(x)}%` } }));
  const parts = list.map((row) => {
    if (row.group !== undefined) return element("div", { class: "group" }, row.group);
    const marks = row.marks.map((mark) => {
      const [from, to] = [axis.at(mark.from), axis.at(mark.to ?? mark.from)];
      return element("i", {
        class: `mark ${mark.kind}`,
        style: { left: `${from}%`, width: `${Math.max(0, to - from)}%`, "--paint": mark.colour ?? row.colour },
        "data-tip": mark.tip,
      });
    });
    return element("div", { class: row.told ? "row told" : "row", tabindex: 0, "data-tip": row.tip },
      element("span", { class: "name" }, swatch(row.colour, row.told), row.name),
      element("span", { class: "value" }, row.value),
      element("span", { class: "track" }, ...grid.map((line) => line.cloneNode()), ...marks));
  });
  const ticks = axis.ticks.map(([x, words]) => element("span", { style: { left: `${axis.at(x)}%` } }, words));
  const keys = key.map(([colour, words, tip]) => element("span", { "data-tip": tip }, swatch(colour), words));
  const ruler = (kind) => element("div", { class: `row axis ${kind}`, "aria-hidden": "true" }, element("span", {}), element("span", {}),
    element("span", { class: "track" }, ...ticks.map((tick) => tick.cloneNode(true))));
  into.replaceChildren(
    ...(keys.length ? [element("div", { class: "key" }, ...keys)] : []),
    element("div", { class: "rows" }, ...(list.length > 12 ? [ruler("top")] : []), ...parts, ruler("")));
}
// A row that is told true lengths is hatched, as are its bars.
function swatch(colour, told) {
  return colour ? element("i", { class: told ? "swatch told" : "swatch", style: { "--paint": colour } }) : "";
}
const hatched = (colour) => `repeating-linear-gradient(135deg, ${colour} 0 2px, transparent 2px 4px)`;

function colourOf(name) {
  return getComputedStyle(document.documentElement).getPropertyValue(name).trim();
}
const drawnLines = new Map();
// lines: {x, isLog, xWords, xTicks, xName, yWords, yName, yMax, stepped, series: [{name, colour, told, values, dash}]}
function drawLines(into, lines) {
  const old = drawnLines.get(into);
  const zoomed = old && old.xName === lines.xName && old.zoom;
  old?.end();
  const plain = { stroke: () => colourOf("--ink"), grid: { stroke: () => colourOf("--line"), width: 1 }, ticks: { stroke: () => colourOf("--line"), width: 1 }, font: "12px system-ui, sans-serif", labelFont: "12px system-ui, sans-serif" };
  const [first, last] = [lines.x[0], lines.x[lines.x.length - 1]];
  const reset = element("button", { type: "button", class: "reset", hidden: true }, "Whole range");
  const box = element("div", { class: "lines", tabindex: 0, role: "img", "aria-label": `${lines.yName} by ${lines.xName}. Arrow keys move the pointer, + and − zoom, 0 shows all.` });
  into.replaceChildren(element("div", { class: "over" }, element("span", { class: "small" }, lines.yName), reset), box);
  const height = () => (narrow() ? 220 : lines.height ?? 260);
  const options = {
    width: box.clientWidth, height: height(), legend: { live: true, markers: { width: 0, fill: (u, i) => (lines.series[i - 1].told ? hatched(lines.series[i - 1].colour) : lines.series[i - 1].colour) } },
    cursor: { drag: { x: true, y: false }, focus: { prox: 16 }, points: { size: 7 }, ...(lines.sync ? { sync: { key: lines.sync, setSeries: false } } : {}) },
    focus: { alpha: 0.35 },
    scales: {
      x: { time: false, distr: lines.isLog ? 3 : 1, range: (u, low, high) => [low, high] },
      y: { range: () => [0, lines.yMax || 1] },
    },
    axes: [
      { ...plain, label: lines.xName, labelSize: 22, size: 34, splits: (u) => lines.xTicks(u.scales.x.min, u.scales.x.max, u.width / 70), values: (u, at) => at.map(lines.xWords), filter: (u, at) => at },
      { ...plain, size: 52, values: (u, at) => at.map(lines.yWords) },
    ],
    series: [
      { label: lines.xName, value: (u, x) => (x === null ? "" : lines.xWords(x, true)) },
      ...lines.series.map((one) => ({
        label: one.name, stroke: one.colour, width: one.width ?? 1.6, dash: one.dash, points: { show: false },
        value: (u, y) => (y === null || y === undefined ? "–" : lines.yWords(y, true)),
        paths: lines.stepped ? uPlot.paths.stepped({ align: 1 }) : undefined,
      })),
    ],
    hooks: {
      setScale: [(u, scale) => {
        if (scale !== "x") return;
        const { min, max } = u.scales.x;
        now.zoom = min > first || max < last ? [min, max] : null;
        reset.hidden = !now.zoom;
      }],
      ready: [(u) => u.root.querySelectorAll(".u-legend .u-series th").forEach(reachByKey)],
    },
  };
  const now = { xName: lines.xName, zoom: null, end: () => { observer.disconnect(); plot.destroy(); } };
  const values = lines.series.map((one) => Array.from(one.values, (y) => (y === y ? y : null)));
  const plot = new uPlot(options, [Array.from(lines.x), ...values], box);
  drawnLines.set(into, now);
  now.plot = plot;
  const scale = (min, max) => plot.setScale("x", { min: Math.max(first, min), max: Math.min(last, max) });
  reset.addEventListener("click", () => { scale(first, last); box.focus(); });
  box.addEventListener("keydown", (event) => moveByKey(event, plot, scale, lines));
  const observer = new ResizeObserver(() => {
    if (box.clientWidth && box.clientWidth !== plot.width) plot.setSize({ width: box.clientWidth, height: height() });
  });
  observer.observe(box);
  if (zoomed) scale(...zoomed);
}
function reachByKey(head) {
  head.tabIndex = 0;
  head.setAttribute("role", "button");
  head.addEventListener("keydown", (event) => {
    if (event.key !== "Enter" && event.key !== " ") return;
    event.preventDefault();
    event.stopPropagation();
    head.click();
  });
}
function moveByKey(event, plot, scale, lines) {
  const { min, max } = plot.scales.x;
  const to = (share) => (lines.isLog ? min * (max / min) ** share : min + (max - min) * share);
  if (event.key === "+" || event.key === "=") scale(to(0.25), to(0.75));
  else if (event.key === "-") scale(to(-0.5), to(1.5));
  else if (event.key === "0") scale(-Infinity, Infinity);
  else if (event.key === "ArrowLeft" || event.key === "ArrowRight") {
    const step = event.key === "ArrowLeft" ? -1 : 1;
    const inView = (i) => plot.data[0][i] >= min && plot.data[0][i] <= max;
    let at = (plot.cursor.idx ?? firstAtLeast(plot.data[0], to(0.5))) + step;
    if (!inView(at)) at = firstAtLeast(plot.data[0], step > 0 ? min : max);
    plot.setCursor({ left: plot.valToPos(plot.data[0][at], "x"), top: plot.over.clientHeight / 2 });
  } else return;
  event.preventDefault();
}
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", () => {
  for (const { plot } of drawnLines.values()) plot.redraw();
});
