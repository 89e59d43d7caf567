// SPDX-License-Identifier: Apache-2.0
// The chart of step times: stacked parts of the mean step of each point, and the slowest step of it.
"use strict";

// Times of steps that are cut off stand above the bars.
const chart = { left: 62, right: 10, top: 24, bottom: 26, height: 204 };

function chartScale() {
  const series = data.series;
  const width = $("steps").parentElement.clientWidth - chart.left - chart.right;
  // A few very slow steps must not flatten all others: they are cut off and marked.
  const sorted = [...series.max].sort((a, b) => a - b);
  const high = 1.12 * Math.min(sorted[sorted.length - 1], 1.6 * sorted[Math.floor(0.95 * (sorted.length - 1))]);
  const first = series.first[0];
  const last = series.first[series.first.length - 1] + series.per;
  return {
    high, first, last,
    x: (step) => chart.left + (width * (step - first)) / Math.max(last - first, 1),
    y: (ns) => chart.height - chart.bottom - ((chart.height - chart.top - chart.bottom) * Math.min(ns, high)) / high,
  };
}

// The times of steps that were cut off, the slowest first; a time that would cover another is left out.
function nameCutSteps(c, to, right) {
  const series = data.series;
  const cut = [...series.max.keys()].filter((i) => series.max[i] > to.high).sort((a, b) => series.max[b] - series.max[a]);
  const taken = [];
  c.fillStyle = colour("text");
  c.textAlign = "left";
  for (const i of cut) {
    const name = time(series.max[i]);
    const width = c.measureText(name).width + 8;
    const x = Math.min(Math.max(to.x(series.first[i] + series.per / 2) - width / 2, chart.left), right - width);
    if (taken.some(([from, end]) => x < end && x + width > from)) continue;
    taken.push([x, x + width]);
    c.fillText(name, x + 4, chart.top - 9);
  }
}

function drawSteps() {
  const series = data.series;
  const to = chartScale();
  const c = fitCanvas($("steps"), chart.height);
  const right = to.x(to.last);
  c.textAlign = "right";
  for (const t of ticks(0, to.high, 5)) {
    c.fillStyle = colour("line");
    c.fillRect(chart.left, Math.round(to.y(t)), right - chart.left, 1);
    c.fillStyle = colour("quiet");
    c.fillText(time(t), chart.left - 7, to.y(t));
  }
  series.first.forEach((step, i) => {
    const x0 = to.x(step);
    const w = Math.max(to.x(step + series.per) - x0 - (right - chart.left > 8 * series.first.length ? 1 : 0), 0.6);
    let below = 0;
    for (const part of ["optimizer", "exposed", "compute"]) {
      const y1 = to.y(below + series[part][i]);
      c.fillStyle = colour(part);
      c.fillRect(x0, y1, w, to.y(below) - y1);
      below += series[part][i];
    }
    c.fillStyle = colour("text");
    if (series.per > 1) c.fillRect(x0, to.y(series.max[i]), w, 1.5);
    if (series.max[i] > to.high) {
      c.fillRect(x0, chart.top, Math.max(w, 2), 7);
    }
  });
  nameCutSteps(c, to, right);
  c.textAlign = "center";
  c.fillStyle = colour("quiet");
  for (const t of ticks(to.first, to.last, Math.max((right - chart.left) / 80, 2))) {
    if (Number.isInteger(t) && to.x(t) < right - 12) c.fillText(t, to.x(t), chart.height - 9);
  }
  c.strokeStyle = colour("accent");
  for (const step of data.steps) {
    if (step.step === null) continue;
    const x = to.x(step.step + 0.5);
    c.fillStyle = colour("accent");
    c.beginPath();
    c.moveTo(x, chart.height - chart.bottom + 1);
    c.lineTo(x - 5, chart.height - chart.bottom + 9);
    c.lineTo(x + 5, chart.height - chart.bottom + 9);
    c.fill();
  }
}

function pointAt(event) {
  const to = chartScale();
  const box = $("steps").getBoundingClientRect();
  const right = to.x(to.last);
  const step = to.first + ((event.clientX - box.left - chart.left) / (right - chart.left)) * (to.last - to.first);
  let i = data.series.first.length - 1;
  while (i > 0 && data.series.first[i] > step) i--;
  return step < to.first || step > to.last ? -1 : i;
}

function startSteps() {
  const series = data.series;
  const canvas = $("steps");
  show("run");
  legend($("steps-legend"), [...PARTS.map(([name, word]) => [name, word]),
    ...(series.per > 1 ? [["text", `slowest of ${series.per} steps`]] : []),
    ["accent", "steps shown below (▲)"]]);
  canvas.addEventListener("mousemove", (event) => {
    const i = pointAt(event);
    showTip(event, i < 0 ? null : [
      series.per > 1 ? `steps ${series.first[i]} to ${series.first[i] + series.per - 1}` : `step ${series.first[i]}`,
      ...PARTS.map(([name, word]) => `${word} ${time(series[name][i])}`),
      series.per > 1 ? `slowest ${time(series.max[i])}` : `step ${time(series.max[i])}`]);
  });
  canvas.addEventListener("mouseleave", () => showTip(null, null));
  canvas.addEventListener("click", (event) => {
    const i = pointAt(event);
    if (i < 0) return;
    const kept = data.steps.map((s, n) => [Math.abs((s.step ?? Infinity) - series.first[i]), n]).sort((a, b) => a[0] - b[0]);
    if (kept.length > 0) chooseStep(kept[0][1]);
  });
  redraws.push(drawSteps);
}
