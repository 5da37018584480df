"use strict";
// The data of the page: policies, jobs (or joined rows of jobs), what is chosen of them, and
// every number that is computed from the chosen ones.

const data = JSON.parse(document.getElementById("data").textContent);
const policies = data.policies;
const base = policies.findIndex((policy) => policy.baseline);

function unpacked(text, Kind) {
  const bytes = Uint8Array.from(atob(text), (letter) => letter.charCodeAt(0));
  return new Kind(bytes.buffer);
}
const rowsMax = data.jobs.rows;
const jobs = {
  weight: data.jobs.weight ? unpacked(data.jobs.weight, Uint32Array) : new Uint32Array(rowsMax).fill(1),
  submit: unpacked(data.jobs.submit, Float32Array),
  labels: {},
};
for (const [label, found] of Object.entries(data.jobs.labels)) {
  const Kind = found.names.length <= 256 ? Uint8Array : Uint16Array;
  jobs.labels[label] = { names: found.names, of: found.of ? unpacked(found.of, Kind) : new Kind(rowsMax) };
}
// A column comes whole, or as the rows where it differs from another.
function column(part, base) {
  if (part.all !== undefined) return unpacked(part.all, Float32Array);
  const made = Float32Array.from(base);
  const to = unpacked(part.to, Float32Array);
  unpacked(part.at, rowsMax <= 65536 ? Uint16Array : Uint32Array).forEach((row, i) => { made[row] = to[i]; });
  return made;
}
const none = new Float32Array(rowsMax);
jobs.wait = data.jobs.wait.map((part) => column(part, none));
jobs.time_to_start = data.jobs.start.map((part, i) => column(part, jobs.wait[i]));
jobs.run = [];
for (const part of data.jobs.run) jobs.run.push(column(part, part.base < 0 ? none : jobs.run[part.base]));
jobs.jct = jobs.run.map((run, i) => run.map((s, row) => s + jobs.wait[i][row]));
const everyRow = Uint32Array.from(jobs.weight.keys());

// The rows that all filters let through; `chosen` is null while there is no filter.
const filters = {};
let chosen = null;
const rows = () => chosen ?? everyRow;
function choose() {
  const set = Object.entries(filters);
  chosen = set.length === 0
    ? null
    : everyRow.filter((row) => set.every(([label, at]) => jobs.labels[label].of[row] === at));
}
function counted(of) {
  let sum = 0;
  for (const row of of) sum += jobs.weight[row];
  return sum;
}

// Values (`value(row)`, NaN: none) with their weights, in order: all quantiles and shares of it.
function distribution(of, value) {
  const kept = [];
  for (const row of of) if (value(row) === value(row)) kept.push(row);
  kept.sort((a, b) => value(a) - value(b));
  const values = new Float64Array(kept.length), upTo = new Float64Array(kept.length);
  let total = 0, sum = 0;
  kept.forEach((row, i) => {
    total += jobs.weight[row];
    sum += jobs.weight[row] * value(row);
    values[i] = value(row);
    upTo[i] = total;
  });
  const at = (share) => values[firstAtLeast(upTo, share * total)];
  return {
    count: total,
    mean: total ? sum / total : NaN,
    least: values[0],
    greatest: values[values.length - 1],
    quantile: (share) => (total ? at(share) : NaN),
    shareUpTo: (x) => {
      const place = firstAbove(values, x);
      return total ? (place ? upTo[place - 1] : 0) / total : NaN;
    },
  };
}
function firstAtLeast(ordered, x) {
  let [low, high] = [0, ordered.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ordered[middle] < x - 1e-9) low = middle + 1; else high = middle;
  }
  return low;
}
function firstAbove(ordered, x) {
  let [low, high] = [0, ordered.length];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (ordered[middle] <= x) low = middle + 1; else high = middle;
  }
  return low;
}

const QUANTITIES = {
  jct: { word: "JCT", of: (policy) => (row) => jobs.jct[policy][row] },
  wait: { word: "wait", of: (policy) => (row) => jobs.wait[policy][row] },
  time_to_start: { word: "time to first start", of: (policy) => (row) => jobs.time_to_start[policy][row] },
};
const ratioOf = (policy) => (row) => {
  const [ours, theirs] = [jobs.jct[policy][row], jobs.jct[base][row]];
  return ours > 0 && theirs > 0 ? ours / theirs : NaN;
};

// The ratio of mean JCTs of each user, over the jobs that finished under both.
function userRatios(of, policy) {
  const label = jobs.labels.user;
  const [ours, theirs] = [0, 0].map(() => new Float64Array(label.names.length));
  for (const row of of) {
    const [x, y] = [jobs.jct[policy][row], jobs.jct[base][row]];
    if (x === x && y === y) {
      ours[label.of[row]] += jobs.weight[row] * x;
      theirs[label.of[row]] += jobs.weight[row] * y;
    }
  }
  return [...ours.keys()]
    .filter((user) => theirs[user] > 0 && label.names[user] !== "")
    .map((user) => ours[user] / theirs[user])
    .sort((a, b) => a - b);
}

// Jobs of the chosen rows that have not started yet: the mean of each bin of time.
function notStarted(policy) {
  const { bins, end } = data.series;
  const inside = new Float64Array(bins), whole = new Float64Array(bins + 1);
  for (const row of rows()) {
    const from = jobs.submit[row] / end * bins;
    const wait = jobs.time_to_start[policy][row];
    const to = Math.min(bins, wait === wait ? from + wait / end * bins : bins);
    const [first, last] = [Math.floor(from), Math.floor(to)];
    if (first >= bins) continue;
    if (first === last) { inside[first] += to - from; continue; }
    inside[first] += first + 1 - from;
    whole[first + 1] += 1;
    whole[last] -= 1;
    if (last < bins) inside[last] += to - last;
  }
  let running = 0;
  return Array.from(inside, (part, bin) => part + (running += whole[bin]));
}

// Numbers in words, as the tables have them.
function digits(value) {
  if (Math.abs(value) >= 1000) return Number(value.toPrecision(3)).toLocaleString("en-US");
  return String(Number(value.toPrecision(3)));
}
function duration(s) {
  if (s === null || s === undefined || s !== s) return "–";
  const size = Math.abs(s);
  if (size === 0) return "0 s";
  if (size < 1) return `${digits(s * 1000)} ms`;
  for (const [unit, unit_s, above_s] of [["s", 1, 60], ["min", 60, 3600], ["h", 3600, 172800]]) {
    if (size < above_s * 0.9995) return `${digits(s / unit_s)} ${unit}`;
  }
  return `${digits(s / 86400)} d`;
}
const times = (x) => `${Number(x.toPrecision(2))}x`;
const factor = (x) => (x !== x || x === null ? "–" : x < 0.095 ? `${Number(x.toPrecision(2))}x` : `${x < 9.995 ? x.toFixed(2) : digits(x)}x`);
const percent = (x) => (x !== x ? "–" : x > 0 && x < 0.0995 ? `${(x * 100).toFixed(1)} %` : `${(x * 100).toFixed(0)} %`);
const whole = (x) => Math.round(x).toLocaleString("en-US");
