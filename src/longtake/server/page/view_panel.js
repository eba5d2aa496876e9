// The map and its buttons, around the view that reports share.

import { byId, download } from "./dom.js";
import { pointsOf } from "./messages.js";
import { COLOURINGS } from "./view/scene.js";
import { Viewer } from "./view/viewer.js";

const PHONE_POINTS = 300_000, DESKTOP_POINTS = 2_000_000;
const FRUSTUM_EVERY = 12;

export class ViewPanel {
  constructor() {
    Object.assign(this, { viewer: null, isAnew: false, waiting: new Map(), newest: -1, lastKey: -FRUSTUM_EVERY });
    this.capacity = matchMedia("(pointer: coarse), (max-width: 760px)").matches ? PHONE_POINTS : DESKTOP_POINTS;
    try {
      this.#make();
    } catch (error) {
      if (error.message !== "no WebGL 2") throw error;
      byId("no-webgl").hidden = false;
      for (const id of ["view", "view-modes", "view-tools"]) byId(id).hidden = true;
    }
  }

  get numPoints() {
    return this.viewer?.counts.points ?? 0;
  }

  get isSlow() {
    return this.viewer?.scene.isSlow ?? true;
  }

  clear() {
    Object.assign(this, { waiting: new Map(), newest: -1, lastKey: -FRUSTUM_EVERY });
    this.viewer?.clear();
    this.showPlace(null);
  }

  // A connection that begins anew sends all points again, of which the first replaces those that were here.
  beginAnew() {
    this.isAnew = true;
  }

  // A message has the pose of its frame, which counts unless windows were moved since.
  addPoints(message, { tracks, version }) {
    if (!this.viewer) return;
    if (this.isAnew) this.viewer.scene.points.clear();
    this.isAnew = false;
    const chunk = pointsOf(message), frame = tracks.get(chunk.frame), given = message.fields;
    const pose = given.pose && (given.version === version || !frame) ? given.pose : frame?.pose;
    if (pose) this.viewer.addPoints({ ...chunk, pose, time: frame?.time ?? message.time_s });
    else this.#wait(chunk);
  }

  setFrame(frame) {
    if (!this.viewer) return;
    const isNow = frame.index >= this.newest;
    if (isNow) this.newest = frame.index;
    const isKey = frame.kind !== "passing" && (frame.index - this.lastKey >= FRUSTUM_EVERY || frame.index === this.lastKey);
    if (isKey) this.lastKey = frame.index;
    this.viewer.setFrame({ ...frame, isKey, isNow });
    for (const chunk of this.waiting.get(frame.index) ?? []) {
      this.viewer.addPoints({ ...chunk, pose: frame.pose, time: frame.time });
    }
    this.waiting.delete(frame.index);
  }

  move(spans) {
    for (const { first, last, matrix } of spans) this.viewer?.moveFrames(first, last, matrix);
  }

  async setPicture(jpeg) {
    if (!this.viewer) return;
    this.viewer.setPicture(await createImageBitmap(new Blob([jpeg], { type: "image/jpeg" })));
  }

  flyTo(pose, intrinsics, words) {
    this.viewer?.flyTo(pose, intrinsics);
    this.showPlace(words);
  }

  setBackdrop(bitmap, pose, intrinsics) {
    this.viewer?.setBackdrop(bitmap, pose, intrinsics);
  }

  highlight(span) {
    this.viewer?.highlight(span);
  }

  showPlace(words) {
    byId("place-words").hidden = !words;
    byId("place-words").textContent = words ?? "";
  }

  async photograph() {
    if (!this.viewer) return;
    const address = URL.createObjectURL(await this.viewer.photograph());
    download(address, "longtake-view.png");
    setTimeout(() => URL.revokeObjectURL(address), 10_000);
  }

  // Points can come a moment before their frame's pose; a few of them are kept for it.
  #wait(chunk) {
    this.waiting.set(chunk.frame, [...(this.waiting.get(chunk.frame) ?? []), chunk]);
    if (this.waiting.size > 64) this.waiting.delete(this.waiting.keys().next().value);
  }

  press(key) {
    const keys = { 1: "overview", 2: "follow", 3: "camera" };
    if (!this.viewer) return false;
    if (keys[key]) this.viewer.setMode(keys[key]);
    else if (key === "f") this.viewer.fit();
    else if (key === "a") this.viewer.above();
    else if (key === "m") this.measure(!this.viewer.isMeasuring);
    else if (key === "c") this.#nextColouring();
    else return false;
    return true;
  }

  measure(isMeasuring) {
    if (!this.viewer) return;
    this.viewer.measure(isMeasuring);
    byId("measure").setAttribute("aria-pressed", String(isMeasuring));
    byId("stage").classList.toggle("measuring", isMeasuring);
  }

  #make() {
    const canvas = byId("view"), viewer = new Viewer(canvas, { capacity: this.capacity });
    this.viewer = viewer;
    viewer.onMode = (mode) => this.#showMode(mode);
    viewer.onMeasured = (marks, size) => this.#showMeasured(marks, size);
    for (const button of byId("view-modes").children) {
      button.addEventListener("click", () => viewer.setMode(button.dataset.mode));
    }
    byId("fit").addEventListener("click", () => viewer.fit());
    byId("above").addEventListener("click", () => viewer.above());
    byId("measure").addEventListener("click", () => this.measure(!viewer.isMeasuring));
    byId("colouring").addEventListener("change", (event) => viewer.set({ colouring: event.target.value }));
    byId("point-size").addEventListener("input", (event) => viewer.set({ pointSize: Number(event.target.value) }));
    byId("sureness").addEventListener("input", (event) => viewer.set({ sureness: Number(event.target.value) }));
    byId("ceiling").addEventListener("change", (event) => viewer.set({ cutsCeiling: event.target.checked }));
    byId("backs").addEventListener("change", (event) => viewer.set({ showsBacks: event.target.checked }));
    byId("frustums").addEventListener("change", (event) => viewer.set({ showsFrustums: event.target.checked }));
    canvas.addEventListener("webglcontextlost", (event) => event.preventDefault());
    canvas.addEventListener("webglcontextrestored", () => location.reload());
  }

  #showMode(mode) {
    for (const button of byId("view-modes").children) {
      button.setAttribute("aria-checked", String(button.dataset.mode === mode));
    }
    if (mode !== "frame" && mode !== "orbit") this.showPlace(null);
  }

  #showMeasured(marks, size) {
    const words = { 0: "Click on two points of the map", 1: "Now the second point" }[marks.length];
    byId("measured").hidden = !this.viewer.isMeasuring;
    byId("measured").textContent = words ?? `${size.toPrecision(3)} units apart (the model's own)`;
  }

  #nextColouring() {
    const select = byId("colouring"), next = (COLOURINGS.indexOf(select.value) + 1) % COLOURINGS.length;
    select.value = COLOURINGS[next];
    this.viewer.set({ colouring: select.value });
  }
}
