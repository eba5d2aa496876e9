// The view as its page uses it: points, frames and moves go in; it can be turned, flown, measured and photographed.

import { centreOf, column, dot, forwardOf, length, multiply, plus, withoutScale } from "./algebra.js";
import { HOME, ViewCamera } from "./camera.js";
import { axesOf, extentOf } from "./extent.js";
import { listenToGestures } from "./gestures.js";
import { Pacer } from "./pacing.js";
import { Scene } from "./scene.js";

export const MODES = ["overview", "orbit", "follow", "camera"];
const EXTENT_MS = 400;
const NEAR_PX = 10;
const FOLLOW = { pitch: 0.62, distance: 0.75 };
const NOTHING = { centre: [0, 0, 0], radius: 1, spacing: 0.01, heights: [0, 1], times: [0, 1], ceiling: 1e30 };

export class Viewer {
  // `axes` are given where the whole is known before; else they follow from the frames that come.
  constructor(canvas, { capacity, axes = null, extent = null, settings = {} }) {
    this.canvas = canvas;
    this.scene = new Scene(canvas, capacity);
    this.camera = new ViewCamera();
    this.settings = {
      colouring: "image", pointSize: 1, sureness: 0, showsBacks: false, cutsCeiling: true, showsFrustums: true,
      first: [0.07, 0.59, 0.67], last: [0.95, 0.44, 0.11], lit: [0.88, 0.16, 0.55], span: null, pixelRatio: 1, ...settings,
    };
    Object.assign(this, { mode: "overview", isMeasuring: false, marks: [], onMeasured: () => {}, onDrawn: () => {} });
    Object.assign(this, { onMode: () => {}, extent: extent ?? NOTHING, isExtentGiven: extent !== null, extentMs: 0 });
    Object.assign(this, { sumOfDowns: [0, 0, 0], firstForward: null, times: [0, 0], areAxesGiven: axes !== null });
    if (axes) this.camera.setAxes(axes.right, axes.down, axes.forward);
    if (extent) this.camera.radius = extent.radius;
    this.pacer = new Pacer(this.scene.gl, (now, skip) => this.#draw(now, skip));
    this.isStill = matchMedia("(prefers-reduced-motion: reduce)").matches;
    listenToGestures(canvas, this.#gestures());
    new ResizeObserver(() => this.pacer.invalidate()).observe(canvas);
    if (extent) this.home();
    else this.pacer.invalidate();
  }

  addPoints(chunk) {
    this.scene.points.add(chunk);
    this.pacer.invalidate();
  }

  // A frame is known, or known better; `isKey` draws its frustum.
  setFrame({ index, time, pose, intrinsics, isKey, isNow }) {
    const isNew = this.scene.way.frames.at(-1) === undefined || index > this.scene.way.frames.at(-1);
    if (isNew) this.#learnAxes(pose);
    this.times = this.scene.way.count ? [Math.min(this.times[0], time), Math.max(this.times[1], time)] : [time, time];
    this.scene.way.set(index, centreOf(pose), time);
    this.scene.points.setPose(index, pose);
    if (isKey && intrinsics) this.scene.addFrustum(index, withoutScale(pose), intrinsics, time);
    if (isNow) {
      this.scene.setNow(withoutScale(pose), intrinsics, time);
      if (this.mode === "camera") this.camera.hold(pose, intrinsics);
    }
    this.pacer.invalidate();
  }

  moveFrames(first, last, matrix) {
    this.scene.points.move(first, last, matrix);
    this.scene.way.move(first, last, matrix);
    for (const [frame, key] of this.scene.frustums) {
      if (frame >= first && frame <= last) key.pose = withoutScale(multiply(matrix, key.pose));
    }
    this.scene.areFrustumsStale = true;
    this.pacer.invalidate();
  }

  setPicture(bitmap) {
    this.scene.picture.set(bitmap);
    this.pacer.invalidate();
  }

  // A frame's own picture behind its points, while the view is where that frame was.
  setBackdrop(bitmap, pose, intrinsics) {
    this.scene.backdrop.set(bitmap);
    Object.assign(this.scene.backdrop, { pose: pose && withoutScale(pose), intrinsics });
    this.pacer.invalidate();
  }

  set(changes) {
    Object.assign(this.settings, changes);
    this.pacer.invalidate();
  }

  setMode(mode) {
    this.mode = mode;
    if (mode !== "orbit") this.scene.backdrop.set(null);
    const now = this.scene.now;
    if (mode === "camera" && now) this.camera.flyTo(now.pose, now.intrinsics, performance.now(), this.isStill);
    if (mode === "overview" || mode === "follow") this.camera.leaveFrame();
    this.onMode(mode);
    this.pacer.invalidate();
  }

  fit() {
    this.#refreshExtent(Infinity);
    this.camera.leaveFrame();
    this.camera.look(ViewCamera.around(this.extent.centre, this.extent.radius));
    this.setMode("orbit");
  }

  home() {
    this.camera.look({ ...HOME, ...ViewCamera.around(this.extent.centre, this.extent.radius) });
    this.setMode(this.isExtentGiven ? "orbit" : "overview");
  }

  above() {
    this.#refreshExtent(Infinity);
    this.camera.look({ yaw: 0, pitch: Infinity, ...ViewCamera.around(this.extent.centre, this.extent.radius) });
    this.setMode("orbit");
  }

  // Ends at this pose exactly, with the picture of these intrinsics wholly in view.
  flyTo(pose, intrinsics) {
    this.mode = "orbit";
    this.scene.backdrop.set(null);
    this.onMode("frame");
    this.camera.flyTo(pose, intrinsics, performance.now(), this.isStill);
    this.pacer.invalidate();
  }

  highlight(span) {
    this.set({ span });
  }

  measure(isMeasuring) {
    Object.assign(this, { isMeasuring, marks: [] });
    this.scene.measured.set([]);
    this.onMeasured([]);
    this.pacer.invalidate();
  }

  clear() {
    this.scene.clear();
    Object.assign(this, { sumOfDowns: [0, 0, 0], firstForward: null, times: [0, 0], extent: NOTHING, marks: [] });
    this.camera.look({ ...HOME, distance: 4, target: [0, 0, 0] });
    this.setMode("overview");
  }

  // The pixel of the canvas, in CSS pixels, where a point of the world is seen.
  project(point) {
    return this.camera.project(point, this.canvas.clientWidth, this.canvas.clientHeight);
  }

  // A picture of the view as a PNG.
  photograph() {
    this.#draw(performance.now(), 1);
    return new Promise((done) => this.canvas.toBlob(done, "image/png"));
  }

  get counts() {
    const { points, way, frustums } = this.scene;
    return {
      points: points.count, received: points.total, capacity: points.capacity, chunks: points.chunks.length,
      path: way.count, frustums: frustums.size, bytes: this.scene.bytes, drawn: this.pacer.numDrawn,
      drawMs: this.pacer.tookMs, skip: this.pacer.skip,
    };
  }

  // The point under a pixel: the nearest to the eye of those close to it.
  pick(x, y) {
    const eye = centreOf(this.camera.pose), ahead = forwardOf(this.camera.pose), up = this.camera.up;
    const isCut = this.settings.cutsCeiling && !this.camera.isHeld;
    return this.scene.points.nearest((place, sureness, seenFrom) => {
      const toEye = plus(eye, place, -1), toSeer = plus(seenFrom, place, -1);
      if (sureness < this.settings.sureness || (isCut && -dot(toSeer, up) > this.extent.ceiling)) return Infinity;
      if (!this.settings.showsBacks && dot(toEye, toSeer) < 0) return Infinity;
      const pixel = this.project(place);
      const off = pixel ? Math.hypot(pixel[0] - x, pixel[1] - y) : Infinity;
      return off > NEAR_PX ? Infinity : -dot(toEye, ahead) * (1 + off / 100);
    });
  }

  #gestures() {
    const free = () => {
      if (this.mode !== "orbit") this.setMode("orbit");
      this.pacer.invalidate();
    };
    return {
      turn: (x, y) => { this.camera.turn(x, y); free(); },
      zoom: (times) => { this.camera.zoom(times); free(); },
      pan: (x, y) => { this.camera.pan(x, y, this.canvas.clientHeight); free(); },
      click: (x, y) => this.isMeasuring && this.#mark(x, y),
    };
  }

  #mark(x, y) {
    const point = this.pick(x, y);
    if (!point) return;
    this.marks = this.marks.length === 2 ? [point] : [...this.marks, point];
    const tick = 0.012 * this.extent.radius, { up, right } = this.camera;
    const ticks = this.marks.flatMap((mark) => [up, right].map(
      (axis) => [[...plus(mark, axis, tick), 0], [...plus(mark, axis, -tick), 0]],
    ));
    const [a, b] = this.marks;
    this.scene.measured.set(b ? [...ticks, [[...a, 0], [...b, 0]]] : ticks);
    this.onMeasured(this.marks, b ? length(plus(b, a, -1)) : null);
    this.pacer.invalidate();
  }

  #learnAxes(pose) {
    if (this.areAxesGiven) return;
    this.sumOfDowns = plus(this.sumOfDowns, withoutScale(pose).filter((_, at) => at % 4 === 1), 1);
    this.firstForward ??= forwardOf(pose);
    const { right, down, forward } = axesOf(this.sumOfDowns, this.firstForward);
    this.camera.setAxes(right, down, forward);
  }

  #refreshExtent(now) {
    if (this.isExtentGiven || now - this.extentMs < EXTENT_MS) return;
    this.extentMs = now === Infinity ? 0 : now;
    const extent = extentOf(this.scene.points, this.scene.way, this.times, this.camera.up);
    if (!extent) return;
    this.scene.areFrustumsStale ||= Math.abs(extent.radius / this.extent.radius - 1) > 0.02;
    this.extent = extent;
    this.camera.radius = extent.radius;
  }

  // Moves the orbit where the mode wants it; whether it is still on its way.
  #steer() {
    const now = this.scene.now, share = this.isStill ? 1 : 0.14;
    if (this.mode === "overview") return this.camera.approach(ViewCamera.around(this.extent.centre, this.extent.radius), share);
    if (this.mode !== "follow" || !now) return false;
    const ahead = column(now.pose, 2), { right, forward } = this.camera;
    return this.camera.approach({
      target: centreOf(now.pose), distance: FOLLOW.distance * this.extent.radius, pitch: FOLLOW.pitch,
      yaw: Math.atan2(-dot(ahead, right), dot(ahead, forward)),
    }, share);
  }

  #draw(now, skip) {
    this.settings.pixelRatio = Math.min(this.scene.isSlow ? 1 : 2, window.devicePixelRatio || 1);
    const [width, height] = [this.canvas.clientWidth, this.canvas.clientHeight].map(
      (side) => Math.max(1, Math.round(side * this.settings.pixelRatio)),
    );
    if (this.canvas.width !== width || this.canvas.height !== height) Object.assign(this.canvas, { width, height });
    this.#refreshExtent(now);
    const isMoving = this.camera.step(now) || this.#steer();
    this.scene.draw(this.camera, this.settings, this.extent, skip);
    this.onDrawn();
    return isMoving;
  }
}
