// SPDX-License-Identifier: Apache-2.0
// Fills the page from the JSON in #data. Every text from a file goes through textContent.
"use strict";

const data = JSON.parse(document.getElementById("data").textContent);
data.kinds = data.kinds.map((kind) => kind.toLowerCase());
// A report on a full disk has no events.
data.steps = data.steps.filter((step) => step.ranks.some((rank) => rank.threads.some((t) => t.events.length > 0)));
const $ = (id) => document.getElementById(id);

function el(tag, className, text) {
  const made = document.createElement(tag);
  if (className) made.className = className;
  if (text !== undefined) made.textContent = text;
  return made;
}

function show(id) {
  $(id).hidden = false;
  return $(id);
}

const colours = new Map(); // of the theme on the page

function colour(name) {
  if (!colours.has(name)) {
    colours.set(name, getComputedStyle(document.documentElement).getPropertyValue("--" + name).trim());
  }
  return colours.get(name);
}

// Black or white, whichever reads better on a colour "#rrggbb".
function inkOn(hex) {
  const [r, g, b] = [1, 3, 5].map((i) => parseInt(hex.slice(i, i + 2), 16));
  return 0.3 * r + 0.59 * g + 0.11 * b > 135 ? "#14181f" : "#ffffff";
}

// ---- numbers in words ----

function digits(value) {
  return value >= 100 ? value.toFixed(0) : value >= 10 ? value.toFixed(1) : value.toFixed(2);
}

function time(ns) {
  if (ns >= 1e9) return digits(ns / 1e9) + " s";
  if (ns >= 1e6) return digits(ns / 1e6) + " ms";
  if (ns >= 1e3) return digits(ns / 1e3) + " µs";
  return ns > 0 ? Math.round(ns) + " ns" : "0";
}

function size(bytes) {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  let unit = 0;
  while (bytes >= 1024 && unit < units.length - 1) {
    bytes /= 1024;
    unit++;
  }
  return (unit === 0 ? Math.round(bytes) : digits(bytes)) + " " + units[unit];
}

const share = (part, whole) => (whole > 0 ? Math.round((100 * part) / whole) + " %" : "");
const plural = (n, word) => n + " " + word + (n === 1 ? "" : "s");

// ---- the parts of a step ----

const PARTS = [
  ["compute", "compute", "forward, backward and everything else of the application"],
  ["exposed", "exposed communication", "the application waits for the exchange"],
  ["optimizer", "optimizer", "update of the parameters"],
];

function legend(into, entries) {
  into.replaceChildren(...entries.map(([name, text]) => {
    const item = el("span");
    const mark = el("i");
    mark.style.background = `var(--${name})`;
    item.append(mark, text);
    return item;
  }));
}

function fillHeadline(head) {
  show("headline");
  $("step-time").textContent = time(head.step);
  $("step-note").textContent = `per step, typical of ${head.n_steps} steps; 95 % take at most ${time(head.p95)}`;
  const bar = $("parts");
  bar.replaceChildren(...PARTS.filter(([name]) => head[name] > 0).map(([name, word, help]) => {
    const part = el("div", "", head[name] > 0.06 * head.step ? share(head[name], head.step) : "");
    part.style.background = `var(--${name})`;
    part.style.color = inkOn(colour(name));
    part.style.flex = `${head[name]} 0 0`;
    part.title = `${word}: ${time(head[name])}, ${share(head[name], head.step)} of the step (${help})`;
    return part;
  }));
  bar.setAttribute("aria-label", PARTS.map(([name, word]) => `${word} ${share(head[name], head.step)}`).join(", "));
  legend($("parts-legend"), PARTS.map(([name, word]) => [name, `${word} ${time(head[name])}`]));
  $("advice").replaceChildren(...head.advice.map(([kind, text]) => el("li", kind, text)));
}

// ---- tables ----

// columns: [heading, function of a row that gives a text or a node, class]
function fillTable(table, columns, rows, rowClass) {
  const head = el("tr");
  head.append(...columns.map(([heading, , className]) => el("th", className && "text", heading)));
  table.replaceChildren(head, ...rows.map((row) => {
    const line = el("tr", rowClass ? rowClass(row) : "");
    line.append(...columns.map(([, value, className]) => {
      const cell = el("td", className);
      cell.append(value(row));
      if (className === "name") cell.title = cell.textContent;
      return cell;
    }));
    return line;
  }));
}

// A number with a bar behind it, against the largest of its column.
function meter(value, largest, name, text) {
  const box = el("span", "", text + " ");
  const bar = el("span", "meter");
  bar.style.width = `${largest > 0 ? Math.round((60 * value) / largest) : 0}px`;
  bar.style.background = `var(--${name})`;
  const room = el("span", "meter");
  room.style.width = "62px";
  room.style.textAlign = "left";
  room.append(bar);
  box.append(room);
  return box;
}

const CAUSES = [["computes", "computes"], ["lane", "no CPU for its lane"], ["link", "link"]];

function causeOf(rank, step) {
  const [, word] = CAUSES.reduce((best, c) => (rank[c[0]] > rank[best[0]] ? c : best));
  return rank.waited > 0.02 * step ? word : ""; // less has no cause worth a name
}

function fillRanks(ranks, head) {
  const step = Math.max(...ranks.map((r) => r.step));
  const waited = Math.max(0.1 * step, ...ranks.map((r) => r.waited)); // short waits look short
  const known = ranks.some((r) => r.n_rounds > 0);
  const causes = ranks.some((r) => CAUSES.some((c) => r[c[0]] > 0));
  show("ranks");
  $("ranks-note").textContent = !known ? "" : head && head.straggler
    ? `Rank ${head.straggler.rank} makes the others wait: ${time(head.straggler.waited)} per step.`
    : "No rank is late much more often than the others.";
  fillTable($("ranks-table"), [
    ["rank", (r) => String(r.rank)],
    ["machine", (r) => r.host, "name"],
    ["step", (r) => (r.step ? time(r.step) : "no file")],
    ["compute", (r) => (r.step ? time(r.compute) : "")],
    ["exposed", (r) => (r.step ? time(r.exposed) : "")],
    ["optimizer", (r) => (r.step ? time(r.optimizer) : "")],
    ...(known ? [
      ["was last", (r) => (r.n_rounds > 0 ? share(r.n_last, r.n_rounds) : "")],
      ["others waited for it, per step", (r) => meter(r.waited, waited, "exposed", time(r.waited))],
    ] : []),
    ...(causes ? [["main cause", (r) => causeOf(r, step), "text"]] : []),
  ], ranks, (r) => (head && head.straggler && head.straggler.rank === r.rank ? "marked" : ""));
}

function fillBuckets(buckets) {
  const exposed = Math.max(...buckets.map((b) => b.exposed));
  const columns = [
    ["bucket", (b) => String(b.bucket)],
    ["first parameter", (b) => b.name + (b.n_params > 1 ? ` + ${b.n_params - 1}` : ""), "name"],
    ["size", (b) => size(b.bytes)],
    ["hook", (b) => b.hook, "name"],
    ["sent", (b) => size(b.wire)],
    ["ready → done", (b) => time(b.ready)],
    ["exchange", (b) => time(b.exchange)],
    ["of it waiting for a rank", (b) => time(b.waiting)],
    ["exposed", (b) => meter(b.exposed, exposed, "exposed", time(b.exposed))],
  ];
  show("buckets");
  fillTable($("buckets-table"), columns, buckets);
}

function fillChoices(choices) {
  const chosen = new Map();
  for (const row of choices.rows) chosen.set(row.hook, (chosen.get(row.hook) || 0) + 1);
  const notes = [(choices.settled ? "" : "Still measuring: ") +
    [...chosen].map(([hook, n]) => `${hook} for ${plural(n, "bucket")}`).join(", ") + `, as of step ${choices.step}.`];
  if (choices.cap_bytes > 0) {
    notes.push(`With bucket_cap_bytes of ${size(choices.cap_bytes)} the step would be ` +
      `${(100 * choices.cap_gain).toPrecision(2)} % shorter.`);
  }
  show("choices");
  $("choices-note").textContent = notes.join(" ");
  fillTable($("choices-table"), [
    ["bucket", (c) => String(c.bucket)],
    ["hook", (c) => c.hook, "name"],
    ["predicted", (c) => (c.predicted > 0 ? time(c.predicted) : "")],
    ["measured", (c) => (c.measured > 0 ? time(c.measured) : "")],
    ["next best", (c) => c.runner_up, "name"],
    ["predicted", (c) => (c.runner_up ? time(c.runner_up_time) : "")],
    ["error", (c) => (c.error > 0 ? (100 * c.error).toPrecision(2) + " %" : "")],
    ["reason", (c) => c.reason, "text"],
  ], choices.rows);
}

function fillBytes(bytes) {
  const largest = Math.max(bytes.wire, bytes.plain);
  if (largest === 0) return; // one rank
  const body = $("bytes-body");
  const rows = [["sent per step and rank", bytes.wire, "bucket"], ["a plain all-reduce would send", bytes.plain, "compute"]];
  show("bytes");
  body.replaceChildren(...rows.map(([word, value, name]) => {
    const line = el("div");
    const bar = el("div");
    bar.style.cssText = `height: 18px; border-radius: 3px; background: var(--${name}); ` +
      `width: ${largest > 0 ? Math.max((60 * value) / largest, 0.3) : 0}%; margin-bottom: 8px;`;
    line.append(`${word}: ${size(value)}`, bar);
    return line;
  }));
  if (bytes.wire > 0 && bytes.plain > 0) {
    body.append(el("p", "", bytes.plain > 1.05 * bytes.wire
      ? `The hook sends ${digits(bytes.plain / bytes.wire)} times fewer bytes.`
      : "The hook does not compress."));
  }
  if (bytes.error !== null) {
    body.append(el("p", "", `Compression error: a step leaves out ${(100 * bytes.error).toPrecision(2)} % of the gradient's norm ` +
      `(mean of the steps measured${bytes.error_max !== null ? `; at most ${(100 * bytes.error_max).toPrecision(2)} %` : ""}). ` +
      "With error feedback, later steps deliver it."));
  }
}

// ---- post-mortem ----

function postLine(line) {
  const row = el("tr", line.state === "arrived" ? "" : "missing");
  row.append(el("td", "", String(line.rank)), el("td", "arrived", line.state),
    el("td", "words", line.words), el("td", "words", line.last));
  return row;
}

function fillPost(posts) {
  const body = $("post-body");
  show("post");
  for (const post of posts) {
    const table = el("table");
    const head = el("tr");
    head.append(el("th", "", "rank"), ...["in this round", "its call", "its last event"].map((t) => el("th", "text", t)));
    table.append(head, ...post.lines.map(postLine));
    body.append(el("p", "what", post.text),
      el("p", "quiet", `${post.status} after ${plural(post.step, "step")}, as rank ${post.rank} saw it` +
        (post.also.length > 0 ? `; ${post.also.length === 1 ? "rank" : "ranks"} ${post.also.join(", ")} said the same` : "")));
    if (post.lines.length > 0) {
      const box = el("div", "table-box");
      box.append(table);
      body.append(box);
    }
  }
}

// ---- the page ----

function fillTop(job) {
  const what = job.program || "training run";
  document.title = `tally report: ${what}`;
  $("title").textContent = what;
  const facts = [plural(job.world, "rank"), job.hosts.length > 1 ? plural(job.hosts.length, "machine") : job.hosts[0],
    `backend ${job.backend}`];
  if (job.n_steps > 0) facts.push(`steps ${job.first_step} to ${job.last_step}`);
  if (job.skipped > 0) facts.push(`${plural(job.skipped, "step")} skipped by the loss scale`);
  if (job.start) facts.push("traced on " + new Date(job.start * 1000).toLocaleString());
  if (job.missing.length > 0) facts.push(`no file of ${job.missing.length > 1 ? "ranks" : "rank"} ${job.missing.join(", ")}`);
  if (job.n_ddps > 1) facts.push(`ddp ${job.ddp}, which sends most, of ${job.n_ddps}`);
  facts.push("tally " + job.tally);
  $("facts").textContent = facts.join(" · ");
}

const redraws = []; // called when the theme or the width changes

function setTheme(theme) {
  document.documentElement.dataset.theme = theme;
  colours.clear();
  $("theme").textContent = theme === "dark" ? "☀ light" : "☾ dark";
  if (data.headline) fillHeadline(data.headline);
  for (const redraw of redraws) redraw();
}

const systemDark = matchMedia("(prefers-color-scheme: dark)");
let themeChosen = false;
systemDark.addEventListener("change", () => {
  if (!themeChosen) setTheme(systemDark.matches ? "dark" : "light");
});
$("theme").addEventListener("click", () => {
  themeChosen = true;
  setTheme(document.documentElement.dataset.theme === "dark" ? "light" : "dark");
});

// A canvas as wide as its box, sharp on every screen; returns its 2d context.
function fitCanvas(canvas, height) {
  const scale = window.devicePixelRatio || 1;
  const width = canvas.parentElement.clientWidth;
  canvas.style.height = height + "px";
  canvas.width = Math.round(width * scale);
  canvas.height = Math.round(height * scale);
  const context = canvas.getContext("2d");
  context.setTransform(scale, 0, 0, scale, 0, 0);
  context.clearRect(0, 0, width, height);
  context.font = "12px system-ui, Arial, sans-serif";
  context.textBaseline = "middle";
  return context;
}

// Shows lines near the pointer; the first is the heading.
function showTip(event, lines) {
  const tip = $("tip");
  tip.hidden = lines === null;
  if (!lines) return;
  tip.replaceChildren(el("b", "", lines[0]), ...lines.slice(1).map((line) => el("div", "", line)));
  const x = Math.min(event.clientX + 14, window.innerWidth - tip.offsetWidth - 6);
  const y = event.clientY + 18 + tip.offsetHeight > window.innerHeight ? event.clientY - tip.offsetHeight - 10 : event.clientY + 18;
  tip.style.left = Math.max(x, 4) + "px";
  tip.style.top = Math.max(y, 4) + "px";
}

// Steps of an axis from 0 to last: 1, 2 or 5 times a power of ten, about n of them.
function ticks(first, last, n) {
  const raw = (last - first) / n;
  const power = 10 ** Math.floor(Math.log10(raw));
  const unit = [1, 2, 5, 10].map((f) => f * power).find((u) => u >= raw);
  const out = [];
  for (let t = Math.ceil(first / unit) * unit; t <= last; t += unit) out.push(t);
  return out;
}
