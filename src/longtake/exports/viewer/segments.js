// Lines of the view: ways of cameras that grow, and frustums.

import { transform } from "./algebra.js";

const MOST_PLACES = 8192;
const PLACE_FLOATS = 4;

// A way is a row of places with their times, four numbers each; segment n joins places n and n + 1. One that grows
// too long keeps every second of its places, so that it never takes more than its buffer.
export class Way {
  constructor(gl) {
    Object.assign(this, { gl, frames: [], values: new Float32Array(MOST_PLACES * PLACE_FLOATS), isStale: false });
    this.buffer = gl.createBuffer();
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, this.values.byteLength, gl.DYNAMIC_DRAW);
  }

  get count() {
    return this.frames.length;
  }

  get bytes() {
    return this.values.byteLength;
  }

  // The place of a frame, whether it is a new one or one that is known better now.
  set(frame, centre, time) {
    if (this.count >= MOST_PLACES) this.#thin();
    const at = this.#placeOf(frame);
    if (this.frames[at] !== frame) {
      this.frames.splice(at, 0, frame);
      this.values.copyWithin((at + 1) * PLACE_FLOATS, at * PLACE_FLOATS, (this.count - 1) * PLACE_FLOATS);
    }
    this.values.set([...centre, time], at * PLACE_FLOATS);
    this.isStale = true;
  }

  move(first, last, matrix) {
    this.frames.forEach((frame, at) => {
      if (frame < first || frame > last) return;
      const place = this.values.subarray(at * PLACE_FLOATS, at * PLACE_FLOATS + 3);
      place.set(transform(matrix, place));
    });
    this.isStale = true;
  }

  places() {
    return this.frames.map((_, at) => [...this.values.subarray(at * PLACE_FLOATS, at * PLACE_FLOATS + 3)]);
  }

  clear() {
    this.frames = [];
  }

  draw() {
    if (this.count < 2) return;
    const gl = this.gl;
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    if (this.isStale) gl.bufferSubData(gl.ARRAY_BUFFER, 0, this.values, 0, this.count * PLACE_FLOATS);
    this.isStale = false;
    drawSegments(gl, 16, this.count - 1);
  }

  // Where a frame is, or would be; most come at the end.
  #placeOf(frame) {
    let low = 0, high = this.count;
    if (high && this.frames[high - 1] < frame) return high;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.frames[middle] < frame) low = middle + 1;
      else high = middle;
    }
    return low;
  }

  #thin() {
    this.frames = this.frames.filter((_, at) => at % 2 === 0);
    this.frames.forEach((_, at) => this.values.copyWithin(at * 4, at * 8, at * 8 + PLACE_FLOATS));
  }
}

// Segments that are made anew whenever they change: frustums, a measured line.
export class Lines {
  constructor(gl) {
    Object.assign(this, { gl, buffer: gl.createBuffer(), count: 0, bytes: 0 });
  }

  set(segments) {
    const gl = this.gl, values = new Float32Array(segments.flat(2));
    Object.assign(this, { count: segments.length, bytes: values.byteLength });
    gl.bindBuffer(gl.ARRAY_BUFFER, this.buffer);
    gl.bufferData(gl.ARRAY_BUFFER, values, gl.DYNAMIC_DRAW);
  }

  draw() {
    if (!this.count) return;
    this.gl.bindBuffer(this.gl.ARRAY_BUFFER, this.buffer);
    drawSegments(this.gl, 32, this.count);
  }
}

function drawSegments(gl, stride, count) {
  for (const [place, offset] of [[0, 0], [1, 16]]) {
    gl.enableVertexAttribArray(place);
    gl.vertexAttribPointer(place, 4, gl.FLOAT, false, stride, offset);
    gl.vertexAttribDivisor(place, 1);
  }
  gl.drawArraysInstanced(gl.TRIANGLE_STRIP, 0, 4, count);
}

// The corners of a camera's picture at a depth: upper left, upper right, lower left, lower right.
export function cornersOf(pose, { fx, fy, cx, cy, width, height }, depth) {
  return [[0, 0], [width, 0], [0, height], [width, height]].map(
    ([x, y]) => transform(pose, [((x - 0.5 - cx) / fx) * depth, ((y - 0.5 - cy) / fy) * depth, depth]),
  );
}

export function frustumOf(pose, intrinsics, depth, time) {
  const [a, b, c, d] = cornersOf(pose, intrinsics, depth), eye = [pose[3], pose[7], pose[11]];
  const pairs = [[eye, a], [eye, b], [eye, c], [eye, d], [a, b], [b, d], [d, c], [c, a]];
  return pairs.map(([from, to]) => [[...from, time], [...to, time]]);
}
