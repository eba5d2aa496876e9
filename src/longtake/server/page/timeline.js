// The video as a line: status of each frame, what of it is remembered, memory and speed as curves, questions.
// Shapes differ as well as colours: solid, hatched, crosses, triangles, dots.

import { byId, bytes, clock, counted, element, many } from "./dom.js";
import { SHAPES, coloursOf, drawKey, hatched } from "./timeline_shapes.js";

const NAMES = { frames: "Frames", kept: "Kept", memory: "Memory", speed: "Frames/s" };
const LEGEND = { final: "final", provisional: "provisional", kept: "kept for questions", forgotten: "forgotten",
  dropped: "dropped", asked: "asked" };
const ROWS = { frames: [2, 14], kept: [20, 8], memory: [34, 34], speed: [72, 16] };
const ROWS_OF_A_TAKE = { frames: ROWS.frames };
const AXIS_Y = 101, AXIS_Y_OF_A_TAKE = 32;
const DRAW_MS = 200, DRAW_SLOWLY_MS = 1000;

export class Timeline {
  // `flyTo(frame)` is called for a moment that was clicked.
  constructor(state, flyTo, isSlow) {
    Object.assign(this, { state, flyTo, drawMs: isSlow ? DRAW_SLOWLY_MS : DRAW_MS, span: null, cursor: null, isAsked: false, drawnMs: 0 });
    this.canvas = byId("timeline");
    this.canvas.addEventListener("pointermove", (event) => this.#point(this.#timeAt(event.offsetX)));
    this.canvas.addEventListener("pointerleave", () => this.#point(null));
    this.canvas.addEventListener("click", (event) => this.#go(this.#timeAt(event.offsetX)));
    this.canvas.addEventListener("keydown", (event) => this.#press(event));
    new ResizeObserver(() => this.invalidate()).observe(this.canvas);
  }

  highlight(span) {
    this.span = span;
    this.invalidate(0);
  }

  // Light became dark, or the other way round.
  recolour() {
    this.#fillLegend();
    this.invalidate(0);
  }

  invalidate(waitMs = this.drawMs) {
    if (this.isAsked) return;
    this.isAsked = true;
    const due = Math.max(0, this.drawnMs + waitMs - performance.now());
    setTimeout(() => requestAnimationFrame(() => {
      Object.assign(this, { isAsked: false, drawnMs: performance.now() });
      this.#draw();
    }), due);
  }

  // A take that is only looked at has frames, and neither a memory nor a speed.
  get #isTake() {
    return this.state.session?.read_only === true;
  }

  get #rows() {
    return this.#isTake ? ROWS_OF_A_TAKE : ROWS;
  }

  get #axisY() {
    return this.#isTake ? AXIS_Y_OF_A_TAKE : AXIS_Y;
  }

  get #gutter() {
    return this.canvas.clientWidth < 600 ? 8 : 66;
  }

  get #range() {
    const { frames, memory, timeS } = this.state;
    const first = frames[0]?.time ?? memory.samples[0]?.time ?? 0;
    return [first, Math.max(timeS, memory.samples.at(-1)?.time ?? 0, first + 1)];
  }

  #x(time) {
    const [first, last] = this.#range;
    return this.#gutter + ((time - first) / (last - first)) * (this.canvas.clientWidth - this.#gutter - 8);
  }

  #timeAt(x) {
    const [first, last] = this.#range, width = this.canvas.clientWidth - this.#gutter - 8;
    return Math.min(last, Math.max(first, first + ((x - this.#gutter) / width) * (last - first)));
  }

  #point(time) {
    this.cursor = time;
    const words = time === null ? this.#summary() : this.#wordsAt(time);
    byId("time-words").textContent = words;
    const [first, last] = this.#range;
    for (const [name, value] of [["valuemin", first], ["valuemax", last], ["valuenow", time ?? last]]) {
      this.canvas.setAttribute(`aria-${name}`, value.toFixed(2));
    }
    this.canvas.setAttribute("aria-valuetext", words);
    this.invalidate(30);
  }

  #go(time) {
    const frame = this.state.tracks.until(time);
    if (frame) this.flyTo(frame);
  }

  #press(event) {
    const { frames } = this.state, here = this.cursor ?? this.#range[1];
    const at = frames.indexOf(this.state.tracks.until(here)), step = event.shiftKey ? 10 : 1;
    const goal = { ArrowLeft: at - step, ArrowRight: at + step, Home: 0, End: frames.length - 1 }[event.key];
    if (event.key === "Enter") this.#go(here);
    else if (goal !== undefined && frames.length) this.#point(frames[Math.min(frames.length - 1, Math.max(0, goal))].time);
    else return;
    event.preventDefault();
    event.stopPropagation();
  }

  #wordsAt(time) {
    const frame = this.state.tracks.until(time), parts = [clock(time)];
    if (frame) parts.push(`frame ${many(frame.index)}, ${this.state.isFinal(frame) ? "final" : "provisional"}`);
    const memory = newestUntil(this.state.memory.samples, time);
    if (memory) parts.push(`${bytes(memory.bytes)} of memory`);
    if (memory?.map?.kept !== undefined) parts.push(`${many(memory.map.kept)} frames kept for the map`);
    if (memory?.dialogue?.spans && this.state.lastMemory?.dialogue?.spans) {
      const isKept = this.state.lastMemory.dialogue.spans.some(([start, end]) => time >= start && time <= end);
      parts.push(isKept ? "still remembered" : "forgotten for questions");
    }
    const speed = newestUntil(this.state.speed.samples, time);
    if (speed?.value) parts.push(`${speed.value.toFixed(1)} frames/s`);
    return parts.join(" · ");
  }

  #summary() {
    const { numFrames, numDropped, marks } = this.state;
    if (!numFrames) return "";
    const forgotten = marks.filter(({ kind }) => kind === "forgotten").length;
    if (this.#isTake) return counted(numFrames, "frame");
    const parts = [counted(numFrames, "frame"), `${many(numDropped)} dropped`];
    if (forgotten) parts.push(`forgot ${counted(forgotten, "time")}`);
    return parts.join(" · ");
  }

  #draw() {
    const canvas = this.canvas, ratio = window.devicePixelRatio || 1;
    const [width, height] = [canvas.clientWidth, canvas.clientHeight];
    Object.assign(canvas, { width: Math.round(width * ratio), height: Math.round(height * ratio) });
    const pen = canvas.getContext("2d", { willReadFrequently: true }); // by the processor: the card has a map to draw
    pen.scale(ratio, ratio);
    pen.font = "11px system-ui, sans-serif";
    this.colours = coloursOf(canvas);
    this.#drawNames(pen, width);
    pen.save();
    pen.beginPath();
    pen.rect(this.#gutter - 0.5, 0, width - this.#gutter - 7, height); // what was before the first frame known is left out
    pen.clip();
    this.#drawFrames(pen);
    if (!this.#isTake) this.#drawCurves(pen);
    this.#drawSpan(pen);
    pen.restore();
    this.#drawMarks(pen);
    if (this.cursor === null) byId("time-words").textContent = this.#summary();
  }

  #drawNames(pen, width) {
    const [first, last] = this.#range, { soft, line } = this.colours;
    pen.fillStyle = soft;
    pen.textAlign = "left";
    if (this.#gutter > 20) {
      for (const [name, [top, tall]] of Object.entries(this.#rows)) pen.fillText(NAMES[name], 0, top + tall / 2 + 4);
    }
    pen.fillText(clock(first), this.#gutter, this.#axisY);
    pen.textAlign = "right";
    pen.fillText(clock(last), width - 8, this.#axisY);
    pen.strokeStyle = line;
    for (const [top, tall] of Object.values(this.#rows)) pen.strokeRect(this.#gutter - 0.5, top - 0.5, width - this.#gutter - 7, tall + 1);
  }

  #drawCurves(pen) {
    this.#drawKept(pen);
    this.#drawMemory(pen);
    this.#drawSpeed(pen);
    this.#drawDashes(pen);
  }

  // Where nothing is known, which is not the same as nothing.
  #drawDashes(pen) {
    const { lastMemory, memory, speed, session } = this.state;
    const known = { kept: lastMemory || !session?.language, memory: memory.samples.length, speed: speed.samples.some(({ value }) => value) };
    pen.fillStyle = this.colours.soft;
    pen.textAlign = "left";
    for (const [name, isKnown] of Object.entries(known)) {
      const [top, tall] = ROWS[name];
      if (!isKnown) pen.fillText("–", this.#gutter + 6, top + tall / 2 + 4);
    }
  }

  // Neighbours of one status are one piece.
  #drawFrames(pen) {
    const [top, tall] = ROWS.frames, { frames } = this.state, hatch = hatched(pen, this.colours.accent);
    for (let first = 0, last = 0; first < frames.length; first = last) {
      const { time } = frames[first], isFinal = this.state.isFinal(frames[first]);
      while (last < frames.length && this.state.isFinal(frames[last]) === isFinal) last += 1;
      const end = frames[last]?.time ?? frames[last - 1].time, x = this.#x(time);
      pen.fillStyle = isFinal ? this.colours.accent : hatch;
      pen.fillRect(x, top, Math.max(1, this.#x(end) - x), tall);
    }
  }

  // What of the video the dialogue still has; the rest of the row is forgotten.
  #drawKept(pen) {
    const spans = this.state.lastMemory?.dialogue?.spans ?? [], [top, tall] = ROWS.kept;
    pen.fillStyle = this.colours.good;
    for (const [start, end] of spans) {
      const x = this.#x(start);
      pen.fillRect(x, top, Math.max(1.5, this.#x(end) - x), tall);
    }
  }

  #drawMemory(pen) {
    const { samples } = this.state.memory, most = this.state.session?.memory_bytes;
    const largest = Math.max(1, ...samples.map((sample) => sample.bytes));
    this.#curve(pen, ROWS.memory, samples.map(({ time, bytes: value }) => [time, value / Math.max(largest, most ?? 0)]), true);
  }

  #drawSpeed(pen) {
    const samples = this.state.speed.samples.filter(({ value }) => value);
    const largest = Math.max(1, ...samples.map(({ value }) => value));
    this.#curve(pen, ROWS.speed, samples.map(({ time, value }) => [time, value / largest]), false);
  }

  #curve(pen, [top, tall], places, isFilled) {
    if (!places.length) return;
    const at = ([time, share]) => [this.#x(time), top + tall - share * (tall - 2)];
    pen.beginPath();
    places.forEach((place) => pen.lineTo(...at(place)));
    pen.strokeStyle = this.colours.accent;
    pen.lineWidth = 1.5;
    pen.stroke();
    pen.lineWidth = 1;
    if (!isFilled) return;
    pen.lineTo(at(places.at(-1))[0], top + tall);
    pen.lineTo(at(places[0])[0], top + tall);
    pen.globalAlpha = 0.18;
    pen.fillStyle = this.colours.accent;
    pen.fill();
    pen.globalAlpha = 1;
  }

  #drawMarks(pen) {
    const [first, last] = this.#range, asked = [...this.state.answers.values()];
    const marks = [...this.state.marks, ...asked.map(({ seen_until_s: seen, askedS }) => ({ kind: "asked", time: seen ?? askedS }))];
    for (const { kind, time } of marks) {
      if (time >= first && time <= last) SHAPES[kind]?.(pen, this.#x(time), this.colours);
    }
  }

  #drawSpan(pen) {
    const height = this.#axisY - 12;
    if (this.span) {
      const [x, end] = this.span.map((time) => this.#x(time));
      pen.fillStyle = this.colours.lit;
      pen.globalAlpha = 0.3;
      pen.fillRect(x, 0, Math.max(2, end - x), height);
      pen.globalAlpha = 1;
      pen.fillRect(x, height, Math.max(2, end - x), 3);
    }
    if (this.cursor === null) return;
    pen.fillStyle = this.colours.text;
    pen.fillRect(this.#x(this.cursor), 0, 1, height);
  }

  #fillLegend() {
    byId("legend").replaceChildren();
    for (const [name, words] of Object.entries(LEGEND)) {
      const key = element("canvas", { width: 32, height: 20, "aria-hidden": "true" });
      byId("legend").append(element("li", {}, key, element("span", { text: words })));
      const pen = key.getContext("2d"), colours = coloursOf(this.canvas);
      pen.scale(2, 2);
      drawKey(pen, name, colours);
    }
  }
}

function newestUntil(samples, time) {
  let found = null;
  for (const sample of samples) {
    if (sample.time > time + 1e-6) break;
    found = sample;
  }
  return found;
}
