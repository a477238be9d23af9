// What a page cannot do without a script: times in the reader's zone, curves, progress of an upload.
"use strict";

const FORMS = {
  full: { dateStyle: "medium", timeStyle: "medium" },
  short: { month: "short", day: "numeric", hour: "2-digit", minute: "2-digit" },
  time: { timeStyle: "medium" },
  day: { dateStyle: "medium", timeZone: "UTC" },  // bills have days of UTC
};

function localTimes(root) {
  for (const time of root.querySelectorAll("time[datetime]")) {
    const at = new Date(time.dateTime);
    const text = new Intl.DateTimeFormat(undefined, FORMS[time.dataset.form]).format(at);
    if (time.textContent !== text) time.textContent = text;
    time.title = at.toLocaleString(undefined, { timeZoneName: "long" });
  }
}

const bytes = (value) => {
  if (value == null) return "–";
  const unit = Math.min(4, Math.max(0, Math.floor(Math.log10(Math.abs(value) || 1) / 3)));
  return `${+(value / 1000 ** unit).toPrecision(3)} ${["B", "kB", "MB", "GB", "TB"][unit]}`;
};

// Curves: one column of numbers for each series, all over the same steps.
const PANELS = [
  { height: 250, series: [["train_loss", "Training loss", "--accent"], ["valid_loss", "Validation loss", "--second"]] },
  { height: 120, series: [["learning_rate", "Learning rate", "--accent"]] },
  { height: 120, series: [["tokens_per_second", "Tokens/s", "--accent"]] },
  { height: 120, show: bytes, series: [["peak_memory_bytes", "Peak memory", "--accent"]] },
];
let curve = null;
let plots = [];
let isDue = false;

const short = (value) =>
  value == null ? "–" : Math.abs(value) >= 1000 ? Math.round(value).toLocaleString()
    : value !== 0 && Math.abs(value) < 0.001 ? value.toExponential(1) : String(+value.toPrecision(4));

function resolved(name) {  // light-dark() is resolved by a property that takes a colour
  const probe = document.body.appendChild(document.createElement("i"));
  probe.style.color = `var(${name})`;
  const found = getComputedStyle(probe).color;
  probe.remove();
  return found;
}

const DISTANCES = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1e3, 2e3, 5e3, 1e4, 2e4, 5e4, 1e5, 1e6];

function axes(show) {  // of whole steps, and of values
  const axis = {
    stroke: resolved("--quiet"), grid: { stroke: resolved("--line"), width: 1 }, ticks: { show: false }, font: "12px system-ui",
  };
  return [{ ...axis, size: 28, incrs: DISTANCES }, { ...axis, size: 64, values: (_, ticks) => ticks.map(show) }];
}

function draw() {
  isDue = false;
  const place = document.getElementById("chart");
  if (!place || !curve || !curve.step.length || !window.uPlot) return;
  place.classList.remove("waits");
  const gaps = curve.step.filter((_, at) => curve.train_loss[at] == null);
  const notice = document.getElementById("chart-gaps");
  notice.hidden = !gaps.length;
  notice.textContent = `The training loss is not a finite number at ${gaps.length === 1 ? "step" : `${gaps.length} of these steps, first at step`} ${gaps[0]}: the curve has a gap there. A lower learning rate is the usual remedy.`;
  const data = (panel) => [curve.step, ...panel.series.map(([name]) => curve[name])];
  if (plots.length) {
    plots.forEach((plot, at) => plot.setData(data(PANELS[at])));
    return plots.forEach(newest);
  }
  plots = PANELS.map((panel) => new uPlot({
    width: place.clientWidth,
    height: panel.height,
    cursor: { sync: { key: "steps" } },
    hooks: { setCursor: [newest] },
    scales: { x: { time: false } },
    axes: axes(panel.show ?? short),
    series: [{ label: "Step" }, ...panel.series.map(([, label, name]) => ({
      label, stroke: resolved(name), width: 2, spanGaps: label.startsWith("Validation"),
      value: (_, value) => (panel.show ?? short)(value), points: { show: label.startsWith("Validation"), size: 5 },
    }))],
  }, data(panel), place));
  plots.forEach(newest);
}

function newest(plot) {  // while no step is pointed at, a legend has the values of the last one
  if (plot.cursor.idx == null) plot.setLegend({ idx: plot.data[0].length - 1 });
}

// A comparison: the training loss of several jobs over the steps of all.
const COLOURS = ["--accent", "--second", "--third", "--fourth", "--fifth", "--sixth"];
let compared = null;

function compare() {
  const place = document.getElementById("compared");
  if (!place || !window.uPlot) return;
  compared?.destroy();
  const jobs = JSON.parse(place.dataset.curves);
  compared = new uPlot({
    width: place.clientWidth,
    height: 280,
    scales: { x: { time: false } },
    axes: axes(short),
    series: [{ label: "Step" }, ...jobs.map((job, at) => ({
      label: job.name, stroke: resolved(COLOURS[at]), width: 2, spanGaps: false,
      value: (_, value) => short(value), points: { show: false },
    }))],
  }, uPlot.join(jobs.map((job) => [job.step, job.train_loss])), place);
}

function redraw() {
  plots.forEach((plot) => plot.destroy());
  plots = [];
  draw();
  compare();
}

// One tick marks all rows of a table.
document.addEventListener("change", (event) => {
  if (!event.target.matches("[data-mark-all]")) return;
  for (const tick of event.target.closest("table").querySelectorAll("tbody .tick input")) tick.checked = event.target.checked;
});

// A blind vote: names are shown when one has voted; the count stays in this tab.
document.addEventListener("click", (event) => {
  const vote = event.target.closest("[data-vote]");
  if (!vote) return;
  for (const name of document.querySelectorAll("#answers [data-name]")) name.textContent = name.dataset.name;
  for (const button of document.querySelectorAll("#answers [data-vote]")) button.disabled = true;
  const key = vote.dataset.pair;
  const votes = JSON.parse(sessionStorage.getItem(key) ?? "{}");
  votes[vote.dataset.vote] = (votes[vote.dataset.vote] ?? 0) + 1;
  sessionStorage.setItem(key, JSON.stringify(votes));
  const said = Object.entries(votes).map(([model, count]) => `${model}: ${count}`).join(" · ");
  document.getElementById("votes").textContent = `Votes in this tab: ${said}`;
});

// Downloaded files are compared with the hashes of a version; they stay in the browser.
const HASHED_MAX = 1e9;

async function hashOf(file) {
  const digest = await crypto.subtle.digest("SHA-256", await file.arrayBuffer());
  return Array.from(new Uint8Array(digest), (each) => each.toString(16).padStart(2, "0")).join("");
}

document.addEventListener("change", async (event) => {
  if (!event.target.matches("[data-verify]")) return;
  const section = event.target.closest("section");
  const said = section.querySelector("[data-verified]");
  const strangers = [];
  if (!window.crypto?.subtle) {
    said.textContent = "A browser hashes files only over TLS or on localhost: use tunery model verify.";
    return;
  }
  for (const file of event.target.files) {
    said.textContent = `Hashing ${file.name}`;
    const row = [...section.querySelectorAll("tr[data-sha256]")].find((each) => each.querySelector("a").textContent === file.name);
    if (!row || file.size > HASHED_MAX) {
      strangers.push(file.name);
      continue;
    }
    const isSame = await hashOf(file) === row.dataset.sha256;
    const state = Object.assign(document.createElement("span"), { className: `state ${isSame ? "good" : "bad"}`, textContent: isSame ? "the same" : "differs: download it again" });
    row.querySelector("[data-copy]").replaceChildren(state);
  }
  said.textContent = strangers.length ? `Not checked, as they are no files of this version or larger than 1 GB: ${strangers.join(", ")}` : "";
});

function later() {  // not more than once a frame
  if (!isDue) requestAnimationFrame(draw);
  isDue = true;
}

document.addEventListener("curve", (event) => {
  curve = JSON.parse(event.detail.data);
  later();
});

document.addEventListener("points", (event) => {
  const added = JSON.parse(event.detail.data);
  curve ??= Object.fromEntries(Object.keys(added).map((name) => [name, []]));
  added.step.forEach((step, at) => {
    let keep = curve.step.length;  // a resumed attempt repeats steps: its own replace the old ones
    while (keep && curve.step[keep - 1] >= step) keep -= 1;
    for (const name of Object.keys(curve)) {
      curve[name].length = keep;
      curve[name].push(added[name][at]);
    }
  });
  later();
});

const offline = (isLost) => { document.getElementById("offline").hidden = !isLost; };
document.addEventListener("htmx:sse:error", (event) => {
  if (event.detail.status === 401) location.reload();  // the key or the session has ended
  offline(true);
});
document.addEventListener("refused", () => offline(true));
document.addEventListener("htmx:sse:after:connection", () => offline(false));
document.addEventListener("htmx:after:swap", () => localTimes(document));
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", redraw);
let width = innerWidth;
addEventListener("resize", () => { if (width !== innerWidth) { width = innerWidth; redraw(); } });

// What cannot be sent is sent once the service answers again. A form keeps what is in it.
const pause = (ms) => new Promise((resolve) => setTimeout(resolve, ms));
const submitted = new Map();  // form → true once the service has answered

async function reached() {
  const icon = document.querySelector("link[rel=icon]").href;
  for (;;) {
    const answer = await fetch(icon, { method: "HEAD", cache: "no-store" }).catch(() => null);
    offline(!(answer?.status < 500));
    if (answer?.status < 500) return;
    await pause(2000);
  }
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (event.defaultPrevented || form.method !== "post" || form.matches("[data-upload]")) return;
  if (submitted.get(form)) return submitted.delete(form);
  event.preventDefault();
  if (submitted.has(form)) return;
  submitted.set(form, false);
  await reached();
  submitted.set(form, true);
  form.requestSubmit(event.submitter);
});

document.addEventListener("htmx:error", async (event) => {
  const { ctx, error } = event.detail;
  if (!ctx || !(error instanceof TypeError)) return;  // it has been answered
  const source = ctx.sourceElement;
  await reached();
  if (source.matches("form")) source.requestSubmit();
  else if (source.matches("a, button")) source.click();
  else source.dispatchEvent(new Event("retry"));
});

// An upload goes in parts, and continues after a cut or a reload with the parts that have arrived.
// Without this script it is an ordinary form.
async function sent(path, body) {  // until it is answered; a refusal is thrown as a response
  for (;;) {
    const answer = await fetch(path, { method: "POST", body, headers: { "hx-request": "true", "hx-current-url": location.href } }).catch(() => null);
    if (answer?.status === 401) location.assign(answer.headers.get("hx-redirect"));
    if (answer?.ok) {
      offline(false);
      return answer.json();
    }
    if (answer && answer.status < 500 && answer.status !== 429) throw answer;
    offline(true);
    await pause(2000);
  }
}

function fields(values) {
  const form = new FormData();
  for (const [name, value] of values) form.append(name, value);
  return form;
}

async function upload(form, file) {
  const name = `upload ${file.name} ${file.size} ${file.lastModified}`;
  const known = JSON.parse(localStorage.getItem(name));
  const about = [["filename", file.name], ["bytes", file.size], ["purpose", form.purpose.value]];
  const state = known ?? { ...await sent(form.dataset.upload, fields(about)), parts: [] };
  const path = `${form.dataset.upload}/${state.id}`;
  const bar = form.querySelector("progress");
  bar.hidden = false;
  try {
    for (let at = state.parts.length * state.part_bytes; at < file.size; at += state.part_bytes) {
      bar.value = at / file.size;
      const bytes = await file.slice(at, at + state.part_bytes).arrayBuffer();
      const part = await sent(`${path}/parts`, fields([["data", new Blob([bytes])]]));
      state.parts.push(part.id);
      localStorage.setItem(name, JSON.stringify(state));
    }
    bar.value = 1;
    const done = await sent(`${path}/complete`, fields(state.parts.map((id) => ["part", id])));
    localStorage.removeItem(name);
    location.assign(done.address);
  } catch (refusal) {
    if (refusal.status !== 401) localStorage.removeItem(name);
    if (known && [404, 409].includes(refusal.status)) return upload(form, file);  // it has expired
    throw refusal;
  }
}

document.addEventListener("submit", async (event) => {
  const form = event.target;
  if (!form.matches("form[data-upload]")) return;
  event.preventDefault();
  const button = form.querySelector("button");
  button.disabled = true;
  try {
    await upload(form, form.file.files[0]);
  } catch (refusal) {
    const answer = new DOMParser().parseFromString(await refusal.text?.() ?? "", "text/html");
    const said = answer.querySelector("p")?.textContent ?? `The file cannot be read: ${refusal.status ?? refusal}`;
    document.getElementById("problem").replaceChildren(Object.assign(document.createElement("p"), { className: "notice bad", textContent: said }));
    form.querySelector("progress").hidden = true;
    button.disabled = false;
  }
});

localTimes(document);
compare();
