// What there is to see, on the graphics card, and one picture of it.

import { centreOf } from "./algebra.js";
import { PointRing } from "./point_ring.js";
import { Lines, Way, cornersOf, frustumOf } from "./segments.js";
import { PICTURE_SHADERS, POINT_SHADERS, Program, SEGMENT_SHADERS } from "./shaders.js";

export const COLOURINGS = ["image", "height", "confidence", "time"];
const NO_SPAN = [1, 0];
const MOST_FRUSTUMS = 256;
const MOST_GROWN = 1.5;
const LARGEST_PX = 64, LARGEST_HELD_PX = 10;
const NOW_DEPTH = 0.12, KEY_DEPTH = 0.035, BEHIND = 15;

export class Scene {
  constructor(canvas, capacity) {
    const gl = canvas.getContext("webgl2", { antialias: false, alpha: true, premultipliedAlpha: false });
    if (!gl) throw new Error("no WebGL 2");
    Object.assign(this, { canvas, gl, isSlow: isDrawnByProcessor(gl), frustums: new Map(), now: null, areFrustumsStale: false });
    this.points = new PointRing(gl, capacity);
    this.way = new Way(gl);
    this.ways = [{ way: this.way, width: 1.5 }];
    Object.assign(this, { keyLines: new Lines(gl), nowLines: new Lines(gl), measured: new Lines(gl) });
    this.pointProgram = new Program(gl, POINT_SHADERS);
    this.segmentProgram = new Program(gl, SEGMENT_SHADERS);
    this.pictureProgram = new Program(gl, PICTURE_SHADERS);
    this.picture = new Picture(gl);
    this.backdrop = new Picture(gl);
  }

  get bytes() {
    const lines = [this.keyLines, this.nowLines, this.measured, ...this.ways.map(({ way }) => way)];
    return this.points.bytes + lines.reduce((sum, { bytes }) => sum + bytes, 0);
  }

  // A way of its own colour and width, such as the true one; places are [x, y, z].
  addWay(places, colour, width) {
    const way = new Way(this.gl);
    places.forEach((place, at) => way.set(at, place, 0));
    this.ways.unshift({ way, width, colour });
  }

  addFrustum(frame, pose, intrinsics, time) {
    this.frustums.set(frame, { pose, intrinsics, time });
    if (this.frustums.size > MOST_FRUSTUMS) {
      [...this.frustums.keys()].forEach((key, place) => place % 2 && this.frustums.delete(key));
    }
    this.areFrustumsStale = true;
  }

  setNow(pose, intrinsics, time) {
    this.now = { pose, intrinsics, time };
    this.areFrustumsStale = true;
  }

  clear() {
    this.points.clear();
    this.way.clear();
    this.frustums.clear();
    this.picture.set(null);
    this.backdrop.set(null);
    Object.assign(this, { now: null, areFrustumsStale: true });
    this.measured.set([]);
  }

  // `extent` has radius, spacing, heights, times and ceiling; `skip` draws every so many-th point.
  draw(camera, settings, extent, skip) {
    const gl = this.gl, { width, height } = this.canvas;
    gl.viewport(0, 0, width, height);
    gl.clearColor(0, 0, 0, 0);
    gl.clear(gl.COLOR_BUFFER_BIT | gl.DEPTH_BUFFER_BIT);
    const clip = camera.clip(width, height);
    const colours = { first: settings.first, last: settings.last, lit: settings.lit };
    const span = settings.span ?? NO_SPAN;
    if (camera.isHeld && !camera.flight) this.#drawPicture(this.backdrop, clip.matrix, BEHIND * extent.radius, 0.45);
    gl.enable(gl.DEPTH_TEST);
    this.pointProgram.use({
      largest: (camera.isHeld ? LARGEST_HELD_PX : LARGEST_PX) * settings.pixelRatio,
      ...colours, span, clipFromWorld: clip.matrix, eye: centreOf(camera.pose), up: camera.up,
      heights: extent.heights, times: extent.times, slots: new Int32Array([0]),
      colouring: new Int32Array([COLOURINGS.indexOf(settings.colouring)]),
      pixels: extent.spacing * settings.pointSize * Math.min(MOST_GROWN, Math.sqrt(skip)) * clip.focal, sureness: settings.sureness,
      ceiling: settings.cutsCeiling && !camera.isHeld ? extent.ceiling : 1e30, showsBacks: settings.showsBacks,
    });
    this.points.draw(skip);
    this.#drawLines(camera, settings, extent, { ...colours, span, clipFromWorld: clip.matrix, nearest: clip.near });
  }

  #drawLines(camera, settings, extent, values) {
    const gl = this.gl, ratio = settings.pixelRatio;
    this.#refreshFrustums(extent.radius);
    gl.enable(gl.BLEND);
    gl.blendFuncSeparate(gl.SRC_ALPHA, gl.ONE_MINUS_SRC_ALPHA, gl.ONE, gl.ONE_MINUS_SRC_ALPHA);
    const screen = [this.canvas.width, this.canvas.height];
    const draw = (lines, width, opacity, colour) => {
      const colours = colour ? { first: colour, last: colour } : {};
      this.segmentProgram.use({ ...values, ...colours, screen, times: extent.times, width: width * ratio, opacity });
      lines.draw();
    };
    const showsFrustums = settings.showsFrustums && !camera.isHeld;
    if (showsFrustums && this.now) {
      Object.assign(this.picture, { pose: this.now.pose, intrinsics: this.now.intrinsics });
      this.#drawPicture(this.picture, values.clipFromWorld, NOW_DEPTH * extent.radius, 0.92);
    }
    if (showsFrustums) draw(this.keyLines, 0.5, 0.55);
    // Faint where a wall is before it, then in full.
    gl.disable(gl.DEPTH_TEST);
    for (const { way, width, colour } of this.ways) draw(way, width, 0.35, colour);
    gl.enable(gl.DEPTH_TEST);
    for (const { way, width, colour } of this.ways) draw(way, width, 1, colour);
    gl.disable(gl.DEPTH_TEST);
    if (showsFrustums) draw(this.nowLines, 1.1, 1, settings.last);
    draw(this.measured, 1.5, 1, settings.lit);
    gl.disable(gl.BLEND);
  }

  #refreshFrustums(radius) {
    if (!this.areFrustumsStale) return;
    this.areFrustumsStale = false;
    const all = [...this.frustums.values()];
    this.keyLines.set(all.flatMap(({ pose, intrinsics, time }) => frustumOf(pose, intrinsics, KEY_DEPTH * radius, time)));
    const now = this.now;
    this.nowLines.set(now?.intrinsics ? frustumOf(now.pose, now.intrinsics, NOW_DEPTH * radius, now.time) : []);
  }

  #drawPicture(picture, clipFromWorld, depth, opacity) {
    if (!picture.bind() || !picture.intrinsics) return;
    const gl = this.gl, corners = new Float32Array(cornersOf(picture.pose, picture.intrinsics, depth).flat());
    this.pictureProgram.use({ clipFromWorld, corners, opacity, picture: new Int32Array([0]) });
    for (const place of [0, 1]) gl.disableVertexAttribArray(place);
    gl.drawArrays(gl.TRIANGLE_STRIP, 0, 4);
  }
}

// A camera's picture on the card: written when it is drawn, however many came since.
class Picture {
  constructor(gl) {
    Object.assign(this, { gl, texture: gl.createTexture(), waiting: null, isThere: false, pose: null, intrinsics: null });
  }

  // An image bitmap, which is closed when it has been drawn or replaced; null for none.
  set(bitmap) {
    this.waiting?.close();
    Object.assign(this, { waiting: bitmap, isThere: bitmap !== null });
  }

  bind() {
    const gl = this.gl;
    if (!this.isThere) return false;
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    if (!this.waiting) return true;
    gl.texImage2D(gl.TEXTURE_2D, 0, gl.RGB, gl.RGB, gl.UNSIGNED_BYTE, this.waiting);
    gl.texParameteri(gl.TEXTURE_2D, gl.TEXTURE_MIN_FILTER, gl.LINEAR);
    for (const name of [gl.TEXTURE_WRAP_S, gl.TEXTURE_WRAP_T]) gl.texParameteri(gl.TEXTURE_2D, name, gl.CLAMP_TO_EDGE);
    this.waiting.close();
    this.waiting = null;
    return true;
  }
}

// Without a graphics card a browser draws on the processor, which others want too.
function isDrawnByProcessor(gl) {
  const names = gl.getExtension("WEBGL_debug_renderer_info");
  const renderer = names ? gl.getParameter(names.UNMASKED_RENDERER_WEBGL) : "";
  return /swiftshader|llvmpipe|softpipe|software|basic render/i.test(renderer);
}
