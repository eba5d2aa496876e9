// What is known of the session that is watched, from its events. Everything in it is bounded, however long it runs.

import { FrameTrack } from "./frame_track.js";
import { Tracking } from "./tracking.js";

const MOST_ANSWERS = 120;
const MOST_SAMPLES = 1024;
const MOST_MARKS = 400;
const MOST_STEPS = 64;
const RATE_WINDOW_MS = 4000;
const LEAST_RATE_MS = 500; // frames that came together say nothing of a rate

// Samples over time; when there are too many, every second one goes.
export class Series {
  constructor() {
    this.samples = [];
  }

  add(sample) {
    this.samples.push(sample);
    if (this.samples.length > MOST_SAMPLES) this.samples = this.samples.filter((_, at) => at % 2 || at > MOST_SAMPLES - 8);
  }
}

export class SessionState {
  constructor() {
    this.listeners = [];
    this.reset();
  }

  // `listener(event, isLive)` hears each event after it was taken in.
  listen(listener) {
    this.listeners.push(listener);
  }

  reset() {
    Object.assign(this, { session: null, isLive: false, tracks: new FrameTrack(), answers: new Map(), version: 0 });
    Object.assign(this, { memory: new Series(), speed: new Series(), marks: [], numDropped: 0, numUnreadable: 0 });
    Object.assign(this, { numFrames: 0, arrivals: [], steps: [], firstTokenS: null, lastMemory: null, isOver: false });
    Object.assign(this, { numFinal: 0, tracking: new Tracking() });
  }

  get frames() {
    return this.tracks.frames;
  }

  get timeS() {
    return this.tracks.last?.time ?? this.lastMemory?.time_s ?? 0;
  }

  // Whether no later frame can move it any more.
  isFinal({ index, status }) {
    return status !== "provisional" || index < this.numFinal || this.session?.finished === true;
  }

  // Whether its source gave nothing, and never will.
  get isBarren() {
    return Boolean(this.session?.problem) && !this.numFrames;
  }

  // Seconds that the network took for a frame of late: the median, since single ones differ much.
  get stepS() {
    const sorted = [...this.steps].sort((one, other) => one - other);
    return sorted.length ? sorted[Math.floor(sorted.length / 2)] : null;
  }

  // Frames a second that really come; what the network alone could do, where that is not known.
  get framesPerS() {
    const { arrivals } = this;
    const span = arrivals.length > 1 ? arrivals.at(-1) - arrivals[0] : 0;
    return span >= LEAST_RATE_MS ? ((arrivals.length - 1) * 1000) / span : null;
  }

  apply(event, isOwn = false) {
    this.#take(event);
    if (isOwn) this.isLive = true;
    for (const listener of this.listeners) listener(event, this.isLive);
  }

  // In how many parts the map is, as the session's description says.
  learnParts(loops) {
    this.#change({ loops: { ...this.session?.loops, ...loops } });
  }

  // Null while all of it is joined.
  get partsInWords() {
    const { num_sub_maps: numParts = 0, apart = [] } = this.session?.loops ?? {};
    return apart.length ? `the map is in ${numParts} parts, ${apart.length} not joined to the first` : null;
  }

  // That its memory holds, null where nobody said: a session that is on disk has none, and tells no bytes.
  get heldBytes() {
    return this.lastMemory?.bytes ?? (this.session?.resident_bytes || null);
  }

  addEarlier(frames) {
    for (const frame of frames) if (!this.tracks.get(frame.index)) this.tracks.set(frame);
  }

  // Questions and answers of before, oldest first, as the server keeps them.
  addExchanges(exchanges) {
    const earlier = exchanges.map(({ key, ...answer }) => [key, { ...answer, isDone: true, isFired: "watch" in answer }]);
    this.answers = new Map([...earlier, ...this.answers].slice(-MOST_ANSWERS));
  }

  #take(event) {
    switch (event.type) {
      case "session.updated": return this.#update(event);
      case "session.finished": return this.#change({ finished: true });
      case "session.evicted": return this.#change({ state: "saved" });
      case "session.closed": return this.#change({ state: "closed" });
      case "session.resumed": return this.#change({ state: "open" });
      case "frame.known": return this.#know(event);
      case "window.moved": return this.#move(event);
      case "input_frame.ack": return this.#acknowledge(event);
      case "input_frame.dropped": this.numDropped += 1; return this.#mark("dropped", event.time_s ?? this.timeS);
      case "input_frame.unreadable": this.numUnreadable += 1; return this.#mark("unreadable", this.timeS);
      case "memory": return this.#remember(event);
      case "watch.fired": return this.#answer(`${event.watch} ${event.id}`, { ...event, isFired: true, isDone: true });
      default: if (event.response) this.#respond(event);
    }
  }

  #update(event) {
    const { id, type, client, session, ...changes } = event;
    if (session) this.#describe(session);
    else this.#change(changes);
    this.numFrames = Math.max(this.numFrames, this.session?.num_frames ?? 0);
    if (this.session?.paused) this.arrivals = [];
  }

  // What was known of the parts of its map stays, where it has left memory since.
  #describe(session) {
    const loops = { ...this.session?.loops, ...session.loops };
    Object.assign(this, { session: { ...session, loops }, version: Math.max(this.version, session.version ?? 0) });
  }

  #change(changes) {
    if (this.session) this.session = { ...this.session, ...changes };
  }

  #know({ index, time_s: time, status, pose, intrinsics, kind, tracking }) {
    this.tracking.take(index, time, tracking);
    this.tracks.set({ index, time, status, pose, intrinsics: intrinsics ?? this.tracks.last?.intrinsics ?? null, kind });
  }

  #move({ version, spans }) {
    this.version = version;
    for (const { first, last, matrix } of spans) this.tracks.move(first, last, matrix);
  }

  #acknowledge({ num_frames: numFrames, num_final: numFinal, step_s: stepS, duplicate }) {
    if (duplicate) return;
    this.numFinal = Math.max(this.numFinal, numFinal ?? 0);
    this.numFrames = numFrames ?? this.numFrames + 1;
    if (Number.isFinite(stepS)) this.steps = [...this.steps, stepS].slice(-MOST_STEPS);
    this.#change({ state: "open" });
    if (!this.isLive || this.session?.paused) return;
    const now = performance.now();
    this.arrivals = [...this.arrivals.filter((at) => now - at < RATE_WINDOW_MS), now].slice(-256);
    this.speed.add({ time: this.timeS, value: this.framesPerS });
  }

  #remember(event) {
    this.lastMemory = event;
    this.memory.add({ time: event.time_s, bytes: event.bytes, map: event.map, dialogue: event.dialogue });
    if (hasForgotten(event.forgotten)) this.#mark("forgotten", event.time_s);
  }

  #mark(kind, time) {
    this.marks.push({ kind, time });
    if (this.marks.length > MOST_MARKS) this.marks.shift();
  }

  #respond(event) {
    const known = this.answers.get(event.response) ?? { text: "", isDone: false, askedS: this.timeS };
    if (event.type === "response.created") this.#answer(event.response, { ...known, question: event.question });
    if (event.type === "response.output_text.delta") this.#answer(event.response, { ...known, text: known.text + event.text });
    if (event.type === "response.output_text.done") {
      if (!event.refusal) this.firstTokenS = event.timing?.first_token_s ?? this.firstTokenS; // else no word was thought of
      this.#answer(event.response, { ...known, ...event, isDone: true });
    }
    if (event.type === "response.cancelled") this.#answer(event.response, { ...known, isDone: true, isCancelled: true });
    if (event.type === "error") this.#answer(event.response, { ...known, isDone: true, problem: event.message });
  }

  #answer(key, answer) {
    this.answers.set(key, answer);
    if (this.answers.size > MOST_ANSWERS) this.answers.delete(this.answers.keys().next().value);
  }
}

function hasForgotten(forgotten) {
  if (!forgotten) return false;
  if (Array.isArray(forgotten)) return forgotten.length > 0;
  if (typeof forgotten === "object") return Object.values(forgotten).some(hasForgotten);
  return forgotten > 0;
}
