"use strict";

const by = (id) => document.getElementById(id);
const messages = [];
let running = null;

function headers() {
  const key = by("key").value;
  return { "Content-Type": "application/json", ...(key && { Authorization: `Bearer ${key}` }) };
}

function fail(error) {
  by("error").textContent = error ?? "";
  by("error").hidden = !error;
}

/* The message of an answer that is an error. */
async function refusal(response) {
  const body = await response.json().catch(() => null);
  return body?.error?.message ?? `the server answers ${response.status}`;
}

function show(role, text) {
  const item = document.createElement("li");
  const name = document.createElement("b");
  const content = document.createElement("span");
  item.className = role;
  name.textContent = role === "user" ? "You" : "Model";
  content.textContent = text;
  item.append(name, content);
  by("messages").append(item);
  item.scrollIntoView({ block: "nearest" });
  return content;
}

/* The data of the events of a stream, as they come. */
async function* events(response) {
  const reader = response.body.pipeThrough(new TextDecoderStream()).getReader();
  let rest = "";
  for (;;) {
    const { value, done } = await reader.read();
    if (done) return;
    const lines = (rest + value).split("\n");
    rest = lines.pop();
    for (const line of lines) {
      if (line === "data: [DONE]") return;
      if (line.startsWith("data: ")) yield JSON.parse(line.slice(6));
    }
  }
}

function request() {
  const system = by("system").value.trim();
  const temperature = by("temperature").value;
  return {
    messages: [...(system ? [{ role: "system", content: system }] : []), ...messages],
    max_completion_tokens: Number(by("most").value) || 512,
    stream: true,
    ...(temperature && { temperature: Number(temperature) }),
  };
}

async function answer() {
  running = new AbortController();
  busy(true);
  fail(null);
  let text = "";
  let content = null;
  try {
    const response = await fetch("/v1/chat/completions", {
      method: "POST", headers: headers(), body: JSON.stringify(request()), signal: running.signal,
    });
    if (!response.ok) throw new Error(await refusal(response));
    content = show("assistant", "");
    for await (const event of events(response)) {
      if (event.error) throw new Error(event.error.message);
      text += event.choices[0]?.delta?.content ?? "";
      content.textContent = text;
      content.scrollIntoView({ block: "nearest" });
    }
  } catch (error) {
    if (error.name !== "AbortError") fail(error.message);
  }
  if (content) messages.push({ role: "assistant", content: text });
  else messages.pop();
  running = null;
  busy(false);
}

function busy(is) {
  by("messages").setAttribute("aria-busy", String(is));
  by("send").disabled = is;
  by("stop").disabled = !is;
}

by("message").value = "";
by("form").addEventListener("submit", (event) => {
  event.preventDefault();
  const content = by("message").value.trim();
  if (running || !content) return;
  by("message").value = "";
  messages.push({ role: "user", content });
  show("user", content);
  answer();
});
by("message").addEventListener("keydown", (event) => {
  if (event.key === "Enter" && !event.shiftKey && !event.isComposing) {
    event.preventDefault();
    by("form").requestSubmit();
  }
});
by("stop").addEventListener("click", () => running?.abort());
by("clear").addEventListener("click", () => {
  running?.abort();
  messages.length = 0;
  by("messages").replaceChildren();
  fail(null);
  by("message").focus();
});

/* Samples of the last minute or so. */
const SAMPLES = 90;
const series = { live: [], waiting: [], pages: [], rate: [], step: [] };
let last = null;

function add(name, value) {
  series[name].push(value);
  if (series[name].length > SAMPLES) series[name].shift();
}

function draw(chart, names, top) {
  const svg = by(chart);
  const most = Math.max(top ?? 0, ...names.flatMap((name) => series[name]), 1e-9);
  svg.setAttribute("viewBox", `0 0 ${SAMPLES - 1} 100`);
  svg.setAttribute("preserveAspectRatio", "none");
  svg.replaceChildren();
  names.forEach((name, number) => {
    const from = SAMPLES - series[name].length;
    const points = series[name].map((value, at) => `${from + at},${98 - (96 * value) / most}`);
    const shapes = [["polyline", number ? "line second" : "line", points]];
    if (!number) shapes.push(["polygon", "area", [...points, `${SAMPLES - 1},100`, `${from},100`]]);
    for (const [shape, kind, corners] of shapes) {
      const element = document.createElementNS("http://www.w3.org/2000/svg", shape);
      element.setAttribute("class", kind);
      element.setAttribute("points", corners.join(" "));
      svg.append(element);
    }
  });
}

async function sample() {
  const text = await (await fetch("/metrics")).text();
  const now = { time: performance.now() / 1000 };
  for (const line of text.split("\n")) {
    const [name, value] = line.split(" ");
    if (name.startsWith("amk_")) now[name.slice(4)] = Number(value);
  }
  const since = (name) => (last ? now[name] - last[name] : 0);
  const steps = since("steps_total");
  const rate = last ? since("tokens_chosen_total") / since("time") : 0;
  const step = steps ? (1000 * since("step_seconds_total")) / steps : 0;
  const waiting = Math.max(0, now.texts_open - now.texts_live);
  const used = now.pages - now.pages_free;
  for (const [name, value] of Object.entries({ live: now.texts_live, waiting, pages: used, rate, step })) {
    add(name, value);
  }
  by("texts").textContent = `${now.texts_live} written, ${waiting} waiting`;
  by("pages").textContent = `${used} of ${now.pages}, ${now.texts_kept} texts kept`;
  by("rate").textContent = rate.toFixed(1);
  by("step").textContent = steps ? `${step.toFixed(1)} ms` : "idle";
  by("totals").textContent =
    `${now.texts_total} texts, ${now.tokens_total} tokens, ` +
    `${now.prompt_tokens_shared_total} of ${now.prompt_tokens_total} prompt tokens shared, ` +
    `${now.requests_refused_total} requests refused`;
  draw("texts-chart", ["live", "waiting"]);
  draw("pages-chart", ["pages"], now.pages);
  draw("rate-chart", ["rate"]);
  draw("step-chart", ["step"]);
  last = now;
}

async function watch() {
  for (;;) {
    if (!document.hidden) await sample().catch(() => { by("rate").textContent = "no answer"; });
    await new Promise((resolve) => setTimeout(resolve, 500));
  }
}

async function name() {
  const response = await fetch("/v1/models", { headers: headers() }).catch(() => null);
  const model = response?.ok ? (await response.json()).data[0] : null;
  by("model").textContent = model ? `${model.id}, ${model.context_window} positions` :
    response?.status === 401 ? "the server asks for a key: see Settings" : "no answer";
}

by("key").addEventListener("change", name);
name();
watch();
