// SPDX-License-Identifier: Apache-2.0
// The timeline of one step: rows per rank and thread, zoom, move, hover.
"use strict";

const AXIS = 24, GUTTER = 116, MAIN_ROW = 22, LANE_ROW = 32, RANK_GAP = 10;
// Kinds of events by their key in data.kinds: colour, words.
const KINDS = {
  step: ["compute", "compute"], wait: ["exposed", "wait for the exchange"], update: ["optimizer", "optimizer"],
  bucket: ["bucket", "exchange of a bucket"], encode: ["encode", "encode"], send: ["send", "send"],
  wait_rank: ["waitrank", "wait for a rank"], reduce: ["reduce", "reduce"], decode: ["decode", "decode"],
  grad_ready: ["text", "gradient ready"], launch: ["accent", "launch"], hook: ["alarm", "hook replaced"],
  error: ["alarm", "error"], checkpoint: ["quiet", "checkpoint"],
};
const PHASES = ["encode", "send", "wait_rank", "reduce", "decode"];
const MARKS = ["grad_ready", "launch", "hook", "error"];

const timeline = { chosen: 0, from: 0, to: 1, rows: [], drawn: [], hovered: null };

// One event is six numbers: kind, begin, length, bucket, bytes, peer; -1 where there is none.
function eventsOf(thread) {
  const out = [];
  for (let i = 0; i < thread.events.length; i += 6) {
    const [kind, begin, length, bucket, bytes, peer] = thread.events.slice(i, i + 6);
    if (data.kinds[kind] in KINDS) out.push({ kind: data.kinds[kind], begin, length, bucket, bytes, peer });
  }
  return out;
}

function layOut(step) {
  const rows = [];
  let y = AXIS;
  for (const rank of step.ranks) {
    const first = y;
    for (const thread of rank.threads) {
      if (data.job.n_ddps <= 1) thread.name = thread.name.replace(/ of ddp \d+$/, "");
      const events = eventsOf(thread);
      const isLane = thread.name.startsWith("lane");
      const onLane = (e) => isLane || e.kind === "bucket" || PHASES.includes(e.kind);
      const lane = events.filter(onLane);
      const main = events.filter((e) => !onLane(e));
      if (main.length > 0) {
        rows.push({ rank: rank.rank, name: thread.name, events: main, y, height: MAIN_ROW, lane: false });
        y += MAIN_ROW + 2;
      }
      if (lane.length > 0) {
        rows.push({ rank: rank.rank, name: main.length > 0 ? "exchange" : thread.name, events: lane, y, height: LANE_ROW, lane: true });
        y += LANE_ROW + 2;
      }
    }
    if (y === first) y += MAIN_ROW;
    rows.push({ rank: rank.rank, label: true, y: first, height: y - first, events: [] });
    y += RANK_GAP;
  }
  timeline.rows = rows;
  timeline.height = y;
}

const xOf = (ns, width) => GUTTER + ((ns - timeline.from) / (timeline.to - timeline.from)) * (width - GUTTER - 8);

// The top and the height of an event: on the lane, phases are a strip below their bucket.
function placeOf(event, row) {
  if (!row.lane) return MARKS.includes(event.kind) ? [row.y + row.height - 6, 6] : [row.y, row.height];
  return PHASES.includes(event.kind) ? [row.y + 19, 12] : [row.y, 18];
}

// A bucket under the mouse stands out.
function opacityOf(event) {
  const hovered = timeline.hovered;
  return hovered && hovered.bucket >= 0 && event.bucket >= 0 && event.bucket !== hovered.bucket ? 0.3 : 1;
}

function drawSpan(c, event, row, width) {
  const x0 = xOf(event.begin, width), x1 = xOf(event.begin + event.length, width);
  if (x1 < GUTTER || x0 > width) return;
  const [y, height] = placeOf(event, row);
  const left = Math.max(x0, GUTTER), w = Math.max(Math.min(x1, width) - left - (x1 - x0 > 4 ? 1 : 0), 1);
  const fill = colour(KINDS[event.kind][0]);
  c.globalAlpha = opacityOf(event);
  c.fillStyle = fill;
  if (MARKS.includes(event.kind)) {
    if (x0 < GUTTER) return;
    c.fillRect(left, y, event.kind === "grad_ready" ? 1 : 2, height);
  } else {
    c.fillRect(left, y, w, height);
  }
  c.globalAlpha = 1;
  timeline.drawn.push({ event, row, x0: left, x1: left + Math.max(w, 3), y0: y, y1: y + height });
}

function labelOf(event) {
  if (event.kind === "bucket") return String(event.bucket);
  return event.kind === "wait_rank" && event.peer >= 0 ? "rank " + event.peer : KINDS[event.kind][1];
}

// The first part of a span, at least as wide as room, that no span drawn over it covers; null if there is none.
function uncovered(drawn, i, room) {
  const span = drawn[i];
  const over = drawn.slice(i + 1).filter((d) => d.row === span.row && !MARKS.includes(d.event.kind) &&
    d.y0 < span.y1 && d.y1 > span.y0 && d.x0 < span.x1 && d.x1 > span.x0).sort((a, b) => a.x0 - b.x0);
  let from = span.x0;
  for (const d of over) {
    if (d.x0 - from >= room) return [from, d.x0];
    from = Math.max(from, d.x1);
  }
  return span.x1 - from >= room ? [from, span.x1] : null;
}

// After all spans, so that none crosses a label.
function drawLabels(c) {
  timeline.drawn.forEach(({ event, x0, x1, y0, y1 }, i) => {
    if (MARKS.includes(event.kind) || y1 - y0 < 12) return;
    const label = labelOf(event);
    c.font = (y1 - y0 < 16 ? "10px" : "12px") + " system-ui, Arial, sans-serif";
    const room = c.measureText(label).width + 8;
    const free = x1 - x0 > room ? uncovered(timeline.drawn, i, room) : null;
    if (!free) return;
    const isBucket = event.kind === "bucket";
    c.globalAlpha = opacityOf(event);
    c.fillStyle = inkOn(colour(KINDS[event.kind][0]));
    c.textAlign = isBucket ? "center" : "left";
    c.fillText(label, isBucket ? (free[0] + free[1]) / 2 : free[0] + 5, (y0 + y1) / 2 + 0.5);
    c.globalAlpha = 1;
  });
}

// The axis stays in sight while the rows scroll.
function drawAxis(c, width, top) {
  c.fillStyle = colour("card");
  c.fillRect(0, top, width, AXIS - 3);
  c.textAlign = "center";
  for (const t of ticks(timeline.from, timeline.to, Math.max((width - GUTTER) / 85, 2))) {
    const x = Math.round(xOf(t, width));
    c.fillStyle = colour("line");
    c.fillRect(x, top + AXIS - 7, 1, 4);
    c.fillStyle = colour("quiet");
    if (x + 24 < width) c.fillText(t === 0 ? "0" : time(t), Math.max(x, GUTTER + 8), top + 10);
  }
}

function drawArrow(c, width) {
  const hovered = timeline.hovered;
  if (!hovered || hovered.bucket < 0) return;
  for (const lane of timeline.drawn.filter((d) => d.event.kind === "bucket" && d.event.bucket === hovered.bucket)) {
    const launch = timeline.drawn.find((d) => d.event.kind === "launch" && d.event.bucket === hovered.bucket &&
      d.row.rank === lane.row.rank && d.event.begin <= lane.event.begin + lane.event.length);
    if (!launch) continue;
    const x = xOf(lane.event.begin, width);
    c.strokeStyle = colour("accent");
    c.lineWidth = 1.5;
    c.beginPath();
    c.moveTo(launch.x0 + 1, launch.y1);
    c.lineTo(x, lane.y0);
    c.stroke();
    c.fillStyle = colour("accent");
    c.beginPath();
    c.arc(x, lane.y0, 3, 0, 7);
    c.fill();
  }
}

function drawTimeline() {
  const canvas = $("spans");
  const width = canvas.parentElement.clientWidth;
  const c = fitCanvas(canvas, timeline.height);
  timeline.drawn = [];
  for (const t of ticks(timeline.from, timeline.to, Math.max((width - GUTTER) / 85, 2))) {
    c.fillStyle = colour("line");
    c.fillRect(Math.round(xOf(t, width)), AXIS, 1, timeline.height);
  }
  for (const row of timeline.rows) {
    if (row.label) continue;
    for (const event of row.events) drawSpan(c, event, row, width);
  }
  drawLabels(c);
  c.clearRect(0, AXIS, GUTTER - 1, timeline.height);
  for (const row of timeline.rows) {
    c.fillStyle = colour(row.label ? "text" : "quiet");
    c.textAlign = row.label ? "left" : "right";
    c.font = (row.label ? "600 12px" : "11px") + " system-ui, Arial, sans-serif";
    c.fillText(row.label ? "rank " + row.rank : shorten(c, row.name, GUTTER - 58), row.label ? 6 : GUTTER - 7,
      row.label ? row.y + 11 : row.y + (row.lane ? 9 : 11));
  }
  c.font = "12px system-ui, Arial, sans-serif";
  drawArrow(c, width);
  drawAxis(c, width, canvas.parentElement.scrollTop);
}

function shorten(c, text, room) {
  while (text.length > 3 && c.measureText(text).width > room) text = text.slice(0, -2) + "…";
  return text;
}

// ---- zoom and move ----

function setRange(from, to) {
  const length = data.steps[timeline.chosen].length;
  const span = Math.min(Math.max(to - from, 50), length);
  timeline.from = Math.min(Math.max(from, 0), length - span);
  timeline.to = timeline.from + span;
  drawTimeline();
}

function zoom(factor, at) {
  const middle = at === undefined ? (timeline.from + timeline.to) / 2 : at;
  setRange(middle - (middle - timeline.from) * factor, middle + (timeline.to - middle) * factor);
}

function chooseStep(i) {
  const step = data.steps[i];
  timeline.chosen = i;
  timeline.hovered = null;
  for (const [n, button] of [...$("choice").children].entries()) button.setAttribute("aria-pressed", String(n === i));
  layOut(step);
  $("spans-note").textContent = step.note;
  setRange(0, step.length);
}

function hit(event) {
  const box = $("spans").getBoundingClientRect();
  const x = event.clientX - box.left, y = event.clientY - box.top;
  for (let i = timeline.drawn.length - 1; i >= 0; i--) {
    const d = timeline.drawn[i];
    if (x >= d.x0 - 1 && x <= d.x1 + 1 && y >= d.y0 && y <= d.y1) return d;
  }
  return null;
}

function tipLines({ event, row }) {
  const [, words] = KINDS[event.kind];
  const lines = [event.kind === "bucket" ? `bucket ${event.bucket}` : event.bucket >= 0 ? `${words}, bucket ${event.bucket}` : words];
  lines.push(`rank ${row.rank}, ${row.name}`);
  lines.push(MARKS.includes(event.kind) ? `at ${time(event.begin)}` : `${time(event.length)}, from ${time(event.begin)}`);
  if (event.bytes > 0) lines.push(size(event.bytes));
  if (event.kind === "wait_rank" && event.peer >= 0) lines.push(`rank ${event.peer} came last`);
  if (event.kind === "grad_ready" && event.peer >= 0) lines.push(`parameter ${event.peer}`);
  return lines;
}

function startMoving(canvas) {
  let drag = null;
  const perPixel = () => (timeline.to - timeline.from) / (canvas.parentElement.clientWidth - GUTTER - 8);
  canvas.addEventListener("mousedown", (event) => {
    drag = { x: event.clientX, from: timeline.from, to: timeline.to };
  });
  window.addEventListener("mouseup", () => { drag = null; });
  canvas.addEventListener("mousemove", (event) => {
    if (drag) {
      const moved = (drag.x - event.clientX) * perPixel();
      setRange(drag.from + moved, drag.to + moved);
      return;
    }
    const found = hit(event);
    const hovered = found ? found.event : null;
    if (hovered !== timeline.hovered) {
      timeline.hovered = hovered;
      drawTimeline();
    }
    showTip(event, found ? tipLines(found) : null);
  });
  canvas.addEventListener("mouseleave", () => {
    timeline.hovered = null;
    showTip(null, null);
    drawTimeline();
  });
  canvas.addEventListener("wheel", (event) => {
    if (!event.ctrlKey && !event.shiftKey) return;
    event.preventDefault();
    const x = event.clientX - canvas.getBoundingClientRect().left;
    zoom(event.deltaY + event.deltaX > 0 ? 1.25 : 0.8, timeline.from + (x - GUTTER) * perPixel());
  }, { passive: false });
}

function startTimeline() {
  const canvas = $("spans");
  show("timeline");
  legend($("spans-legend"), ["step", "wait", "update", "bucket", ...PHASES, "grad_ready", "launch"].map((k) => KINDS[k]));
  $("choice").replaceChildren(...data.steps.map((step, i) => {
    const button = el("button", "", step.label);
    button.type = "button";
    button.addEventListener("click", () => chooseStep(i));
    return button;
  }));
  $("zoom-in").addEventListener("click", () => zoom(0.5));
  $("zoom-out").addEventListener("click", () => zoom(2));
  $("zoom-all").addEventListener("click", () => setRange(0, data.steps[timeline.chosen].length));
  canvas.addEventListener("keydown", (event) => {
    const span = timeline.to - timeline.from;
    const keys = {
      "+": () => zoom(0.5), "=": () => zoom(0.5), "-": () => zoom(2), 0: () => setRange(0, data.steps[timeline.chosen].length),
      ArrowLeft: () => setRange(timeline.from - span / 4, timeline.to - span / 4),
      ArrowRight: () => setRange(timeline.from + span / 4, timeline.to + span / 4),
    };
    if (keys[event.key]) {
      event.preventDefault();
      keys[event.key]();
    }
  });
  startMoving(canvas);
  canvas.parentElement.addEventListener("scroll", drawTimeline);
  layOut(data.steps[0]);
  redraws.push(drawTimeline);
  chooseStep(0);
}

// ---- fill the page ----

fillTop(data.job);
if (data.post.length > 0) fillPost(data.post);
if (data.steps.length > 0) startTimeline();
if (data.series) startSteps();
if (data.ranks.some((r) => r.step > 0)) fillRanks(data.ranks, data.headline);
if (data.buckets.length > 0) fillBuckets(data.buckets);
if (data.choices && data.choices.rows.length > 0) fillChoices(data.choices);
if (data.bytes) fillBytes(data.bytes);
if (data.notes.length > 0) {
  show("notes");
  fillTable($("notes-table"), [["", (n) => n[0], "text"], ["", (n) => n[1], "text"]], data.notes);
}
setTheme(systemDark.matches ? "dark" : "light");
window.addEventListener("resize", () => redraws.forEach((redraw) => redraw()));
