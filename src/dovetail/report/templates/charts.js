"use strict";
// Which picture shows what, and the filters that all of them follow.

const charts = {
  mean(into) {
    const list = policies.map((policy, i) => {
      const of = chosen ? distribution(rows(), QUANTITIES.jct.of(i)) : policy;
      return { ...policy, mean: of.mean ?? NaN, low: chosen ? null : policy.low, high: chosen ? null : policy.high, bound: chosen ? null : policy.bound };
    });
    const axis = linear(Math.max(1e-9, ...list.flatMap((p) => [p.mean || 0, p.high ?? 0, p.bound ?? 0])) * 1.04, narrow() ? 4 : 7);
    drawRows(into, axis, list.map((p) => {
      const said = `${p.name}: mean JCT ${duration(p.mean)}`
        + (p.low === null ? "" : `, 95 % interval ${duration(p.low)} to ${duration(p.high)}`)
        + (p.bound === null ? "" : `, bound ${duration(p.bound)}`);
      const marks = p.mean === p.mean ? [{ kind: "bar", from: 0, to: p.mean }, { kind: "dot", from: p.mean }] : [];
      if (p.low !== null) marks.push({ kind: "line", from: p.low, to: p.high });
      if (p.bound !== null) marks.push({ kind: "bound", from: p.bound });
      return { name: p.name, colour: p.colour, told: p.told, value: duration(p.mean), tip: said, marks };
    }));
    if (chosen) into.append(element("p", { class: "small" }, "Means of the chosen jobs; intervals and bounds are known of all jobs only."));
  },

  size(into) {
    withChoice(into, "size", { wait: "wait", jct: "JCT", time_to_start: "time to first start" }, (part, quantity) =>
      quantilesBySize(part, QUANTITIES[quantity].of, QUANTITIES[quantity].word, DURATIONS, duration, policies.map((_, i) => i)));
  },

  "by-size"(into) {
    const ratios = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000];
    quantilesBySize(into, ratioOf, `JCT, ratio to ${policies[base].name}`, ratios, factor, others(), 1);
  },

  "by-user"(into) {
    const found = others().map((i) => userRatios(rows(), i));
    const all = found.flat().filter((x) => x > 0);
    if (all.length === 0) return nothing(into, "no users chosen");
    const x = geometric(Math.min(0.8, minOf(all)), Math.max(1.25, maxOf(all)), 300);
    drawLines(into, {
      x, isLog: true, stepped: true, xName: `mean JCT of a user, ratio to ${policies[base].name}`, yName: "users at or below (%)", yMax: 101,
      xWords: (r, exact) => (exact ? factor(r) : times(r)), yWords: (y) => digits(y), xTicks: (low, high, most) => inside([0.001, 0.01, 0.1, 0.2, 0.5, 1, 2, 5, 10, 100], low, high, most),
      series: others().map((i, k) => ({ ...policies[i], values: x.map((r) => firstAbove(found[k], r) / found[k].length * 100) })),
    });
  },

  jct(into) {
    withChoice(into, "jct", { jct: "JCT", wait: "wait", time_to_start: "time to first start" }, (part, quantity) => {
      const found = policies.map((_, i) => distribution(rows(), QUANTITIES[quantity].of(i)));
      const positive = policies.flatMap((_, i) => { const d = found[i]; return d.count && d.greatest > 0 ? [d.greatest] : []; });
      if (positive.length === 0) return nothing(part, "no job chosen");
      const least = Math.max(1, minOf(found.filter((d) => d.count).map((d) => d.least)));
      const x = geometric(Math.min(least, maxOf(positive) / 2), maxOf(positive), 400);
      drawLines(part, {
        x, isLog: true, stepped: true, xName: QUANTITIES[quantity].word, yName: "jobs at or below (%)", yMax: 101,
        xWords: duration, yWords: (y) => digits(y), xTicks: (low, high, most) => durationTicks(low, high, most),
        series: policies.map((policy, i) => ({ ...policy, values: x.map((s) => found[i].shareUpTo(s) * 100) })),
      });
    });
  },

  queue(into) {
    const [first, second] = partsOf(into, 2);
    const waiting = chosen && !data.jobs.joined;
    overTime(first, waiting ? "chosen jobs that have not started" : "waiting jobs", waiting ? policies.map((_, i) => notStarted(i)) : seriesOf("waiting"), whole);
    overTime(second, "GPUs held", seriesOf("held_gpus"), whole, data.series.capacity);
    wholeOnly(second);
    if (chosen && !waiting) wholeOnly(first);
  },

  load(into) {
    const shown = [["waiting", "waiting jobs", whole], ["held_gpus", "GPUs held", whole], ["cluster_efficiency", "cluster efficiency", digits], ["blocking_index", "blocking index", digits]];
    const places = partsOf(into, shown.length);
    shown.forEach(([column, words, spell], i) => {
      overTime(places[i], words, seriesOf(column), spell, column === "held_gpus" ? data.series.capacity : 0);
    });
    wholeOnly(into);
  },

  where(into) {
    const kinds = [["useful", "useful work", "#0072b2"], ["slowdown", "slowed down", "#56b4e9"], ["switching", "switching", "#d55e00"], ["idle_waiting", "idle, jobs wait", "#e69f00"], ["idle_empty", "idle, none wait", "#aeb6bf"], ["down", "node away", "#5b6168"]];
    const list = policies.flatMap((policy, i) => {
      const seconds = { ...data.spending[i] };
      const total = Object.values(seconds).reduce((a, b) => a + b, 0);
      if (!(total > 0)) return [];
      // Below zero where sharing did more with less: a bar shows time, so the gain leaves the useful part.
      if (seconds.slowdown < 0) { seconds.useful += seconds.slowdown; seconds.slowdown = 0; }
      let from = 0;
      const marks = kinds.filter(([kind]) => seconds[kind] > 0).map(([kind, words, colour]) => {
        const share = seconds[kind] / total * 100;
        from += share;
        return { kind: "piece", from: from - share, to: from, colour, tip: `${policy.name}: ${words} ${percent(share / 100)}, ${whole(seconds[kind] / 3600)} GPU-hours` };
      });
      return [{ name: policy.name, colour: policy.colour, told: policy.told, value: percent(seconds.useful / total), marks }];
    });
    if (list.length === 0) return nothing(into, "no capacity recorded");
    const used = kinds.filter(([kind]) => data.spending.some((seconds) => Math.abs(seconds[kind]) > 0));
    drawRows(into, { at: (x) => x, ticks: [0, 25, 50, 75, 100].map((x) => [x, `${x} %`]) }, list, used.map(([, words, colour]) => [colour, words]));
    wholeOnly(into);
  },
};

const others = () => [...policies.keys()].filter((i) => i !== base);
const seriesOf = (column) => data.series[column].map((text) => unpacked(text, Float32Array));
const minOf = (values) => values.reduce((a, b) => Math.min(a, b), Infinity);
const maxOf = (values) => values.reduce((a, b) => Math.max(a, b), -Infinity);
const geometric = (low, high, points) => Array.from({ length: points }, (_, i) => low * (high / low) ** (i / (points - 1)));
function inside(marks, low, high, most) {
  let kept = marks.filter((x) => x >= low * (1 - 1e-9) && x <= high * (1 + 1e-9));
  while (kept.length > Math.max(2, most)) kept = kept.filter((_, i) => i % 2 === 0);
  return kept;
}
function durationTicks(low, high, most) {
  const kept = inside(DURATIONS, low, high, most);
  if (kept.length > 2) return kept;
  const step = STEPS.find((s) => (high - low) / s <= Math.max(2, most)) ?? high - low;
  const ticks = [];
  for (let at = Math.ceil(low / step) * step; at <= high; at += step) ticks.push(at);
  return ticks;
}
function nothing(into, why) {
  drawnLines.get(into)?.end();
  drawnLines.delete(into);
  into.replaceChildren(element("p", { class: "small" }, why));
}
function wholeOnly(into) {
  if (chosen) into.append(element("p", { class: "small" }, "All jobs: the filter does not reach this picture."));
}
function partsOf(into, count) {
  let parts = [...into.querySelectorAll(":scope > .part")];
  if (parts.length === 0) parts = Array.from({ length: count }, () => element("div", { class: "part" }));
  into.replaceChildren(...parts);
  return parts;
}

function overTime(into, name, lines, spell, capacity = 0) {
  const { bins, end } = data.series;
  if (lines.every((line) => line.every((y) => y !== y))) return nothing(into, `${name}: nothing recorded`);
  const [unit, unit_s] = [["days", 86400], ["hours", 3600], ["minutes", 60]].find(([, s]) => end >= 3 * s) ?? ["s", 1];
  const x = Array.from({ length: bins }, (_, i) => end * i / bins / unit_s);
  const series = policies.map((policy, i) => ({ ...policy, values: lines[i] }));
  if (capacity) series.push({ name: "GPUs present", colour: colourOf("--faint"), dash: [5, 4], width: 1, values: x.map(() => capacity) });
  const greatest = maxOf([capacity, ...lines.map((line) => maxOf(line.filter((y) => y === y)))]);
  drawLines(into, {
    x, xName: `time since first submission (${unit})`, yName: name, yMax: greatest * 1.06, stepped: true, sync: "time",
    xWords: (t) => digits(t), yWords: (y, exact) => (exact ? digits(y) : spell === whole && greatest < 5 ? digits(y) : spell(y)), series,
    xTicks: (low, high, most) => {
      const step = [0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1, 2, 5, 10, 20, 50, 100, 200, 500, 1000].find((s) => (high - low) / s <= most) ?? high - low;
      const ticks = [];
      for (let i = Math.ceil(low / step); i * step <= high; i += 1) ticks.push(i * step);
      return ticks;
    },
  });
}

function quantilesBySize(into, value, word, ticks, spell, shown, line) {
  const label = jobs.labels.size_class;
  const groups = label.names.map((name, at) => ({ name, of: rows().filter((row) => label.of[row] === at) }));
  const found = groups.flatMap(({ name, of }) => shown.map((i) => ({ name, i, d: distribution(of, value(i)) })));
  const drawn = found.filter(({ d }) => d.count);
  const all = drawn.flatMap(({ d }) => [0.25, 0.5, 0.75, 0.99].map((q) => d.quantile(q))).filter((v) => v > 0);
  if (all.length === 0) return nothing(into, drawn.length ? "no job waits" : "no job chosen");
  const least = Math.max(line ? 0 : Math.min(1, maxOf(all) / 10), minOf(all));
  const hasZero = !line && drawn.some(({ d }) => d.quantile(0.25) <= 0);
  const axis = logarithmic(line ? Math.min(least, 0.8) : least, Math.max(maxOf(all), line ? 1.25 : 0), ticks, line ? times : spell, narrow() ? 4 : 8, hasZero);
  const list = [];
  for (const { name, of } of groups) {
    if (of.length) list.push({ group: `${name} ${name === "1" ? "GPU" : "GPUs"} · ${whole(counted(of))} jobs` });
    for (const { i, d } of drawn.filter((one) => one.name === name)) {
      const [low, middle, high, top] = [0.25, 0.5, 0.75, 0.99].map((q) => d.quantile(q));
      const tip = `${policies[i].name}, ${name} GPUs: ${word} median ${spell(middle)}, middle half ${spell(low)} to ${spell(high)}, 99 % ${spell(top)}, mean ${spell(d.mean)}, ${whole(d.count)} jobs`;
      const marks = [{ kind: "line thin", from: high, to: top }, { kind: "bar", from: low, to: high }, { kind: "tick", from: top }, { kind: "dot", from: middle }];
      list.push({ name: policies[i].name, colour: policies[i].colour, told: policies[i].told, value: spell(middle), tip, marks: line ? [{ kind: "bound", from: line }, ...marks] : marks });
    }
  }
  drawRows(into, axis, list);
}

// A choice of what a picture shows; it survives a change of the filters.
const picked = {};
function withChoice(into, key, words, draw) {
  const part = into.querySelector(":scope > .part") ?? element("div", { class: "part" });
  picked[key] ??= Object.keys(words)[0];
  if (!part.isConnected) {
    const buttons = Object.entries(words).map(([value, word]) => {
      const radio = element("input", { type: "radio", name: `show-${key}`, value, ...(value === picked[key] ? { checked: true } : {}) });
      radio.addEventListener("change", () => { picked[key] = value; draw(part, value); });
      return element("label", {}, radio, word);
    });
    into.replaceChildren(element("div", { class: "choice" }, ...buttons), part);
  }
  draw(part, picked[key]);
}

const LABEL_WORDS = { user: "User", account: "Account", queue: "Queue", size_class: "GPUs asked for", model: "Model" };
function drawFilters() {
  const section = document.getElementById("selection");
  const bar = section.querySelector(".filters");
  for (const [label, word] of Object.entries(LABEL_WORDS)) {
    if (jobs.labels[label].names.length < 2) continue;
    const select = element("select", { "data-label": label }, element("option", { value: "" }, "all"),
      ...jobs.labels[label].names.map((name, at) => element("option", { value: at }, name || "(none)")));
    select.addEventListener("change", () => {
      if (select.value === "") delete filters[label]; else filters[label] = Number(select.value);
      drawAll();
    });
    bar.append(element("label", {}, element("span", {}, word), select));
  }
  const clear = element("button", { type: "button", class: "clear", hidden: true }, "Show all jobs");
  clear.addEventListener("click", () => {
    for (const label of Object.keys(filters)) delete filters[label];
    for (const select of bar.querySelectorAll("select")) select.value = "";
    drawAll();
  });
  bar.append(clear);
  section.hidden = !bar.querySelector("select");
}
function sayChosen() {
  const section = document.getElementById("selection");
  const joined = data.jobs.joined ? ` Similar jobs of one user, queue and size are joined into ${whole(data.jobs.rows)} rows for the pictures: means are exact, quantiles nearly.` : "";
  section.querySelector(".chosen").textContent = (chosen ? `${whole(counted(chosen))} of ${whole(data.jobs.count)} jobs chosen. Tables elsewhere are of all jobs.` : `All ${whole(data.jobs.count)} jobs.`) + joined;
  section.querySelector(".clear").hidden = !chosen;
  const heads = ["policy", "jobs", "mean JCT", "vs baseline", "median", "99 %", "wait"];
  const cells = (i) => {
    const [jct, wait] = [distribution(rows(), QUANTITIES.jct.of(i)), distribution(rows(), QUANTITIES.wait.of(i))];
    const ratio = base < 0 ? NaN : jct.mean / distribution(rows(), QUANTITIES.jct.of(base)).mean;
    return [whole(jct.count), duration(jct.mean), factor(ratio), duration(jct.quantile(0.5)), duration(jct.quantile(0.99)), duration(wait.mean)];
  };
  const table = () => element("div", { class: "scroll", tabindex: 0 }, element("table", {},
    element("thead", {}, element("tr", {}, ...heads.map((head) => element("th", { scope: "col" }, head)))),
    element("tbody", {}, ...policies.map((policy, i) => element("tr", {}, element("th", { scope: "row" }, swatch(policy.colour, policy.told), policy.name), ...cells(i).map((cell) => element("td", {}, cell)))))));
  document.querySelector(".of-chosen").replaceChildren(...(chosen ? [table()] : []));
}

function drawAll() {
  choose();
  sayChosen();
  for (const into of document.querySelectorAll("[data-chart]")) charts[into.dataset.chart](into);
}
drawFilters();
drawAll();
let wasNarrow = narrow();
addEventListener("resize", () => { if (narrow() !== wasNarrow) { wasNarrow = narrow(); drawAll(); } });
