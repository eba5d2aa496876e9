// Points in pages of fixed size, the oldest overwritten first. Each row knows its slot, a place in a texture that says
// where the points of one chunk lie: to move a window is to change the matrices of its slots.
//
// byte  0        6       9            10     12        15
//       x y z    r g b   confidence   slot   normal    unused
//       3 x u16  3 x u8  u8           u16    3 x i8
//
// What comes is written to the card once a picture, and only the pages and texels that changed.

import { centreOf, dot, multiply, scaleOf, scaled, transform, withoutScale } from "./algebra.js";
import { NOWHEN, SLOTS_ACROSS, TEXELS_PER_SLOT } from "./shaders.js";

export const ROW_BYTES = 16;
const FEW_SLOTS = 16384, MANY_SLOTS = 65536, MANY_POINTS = 500_000;
const PAGE_ROWS = 65536;
const SLOT_FLOATS = TEXELS_PER_SLOT * 4;
const SAMPLES = 12, MOST_SAMPLED = 400;
const MOST_SKIPPED = 15;

export class PointRing {
  constructor(gl, capacity) {
    Object.assign(this, { gl, capacity, head: 0, count: 0, total: 0, chunks: [], pending: [], pages: [] });
    const numSlots = capacity > MANY_POINTS ? MANY_SLOTS : FEW_SLOTS;
    this.free = Array.from({ length: numSlots }, (_, number) => numSlots - 1 - number);
    this.values = new Float32Array(numSlots * SLOT_FLOATS);
    this.staleLines = new Set();
    this.texture = gl.createTexture();
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    gl.texStorage2D(gl.TEXTURE_2D, 1, gl.RGBA32F, SLOTS_ACROSS * TEXELS_PER_SLOT, numSlots / SLOTS_ACROSS);
    for (const name of [gl.TEXTURE_MIN_FILTER, gl.TEXTURE_MAG_FILTER]) gl.texParameteri(gl.TEXTURE_2D, name, gl.NEAREST);
  }

  // Of the card's memory that points take, as far as there have been any.
  get bytes() {
    return this.pages.reduce((sum, { rows }) => sum + rows * ROW_BYTES, 0) + this.values.byteLength;
  }

  // Rows as on the wire, ten bytes each, or with normals beside them; they lie in the camera's coordinates. A chunk of a
  // number that came before takes its place.
  add({ number = null, frame, time, pose, origin, scale, rows, count, normals = null }) {
    const taken = Math.min(count, this.capacity);
    if (number !== null) this.#hide(number);
    if (!taken) return;
    this.#makeRoom(taken);
    const chunk = { number, frame, time, pose: withoutScale(pose), grown: scaleOf(pose), origin, scale, count: taken };
    chunk.slot = this.free.pop();
    chunk.samples = samplesOf(rows, taken, origin, scale);
    this.chunks.push(chunk);
    this.#append(packed(rows, taken, chunk.slot, normals), taken);
    this.#place(chunk);
    this.total += taken;
  }

  // The pose of a frame is known anew; what a window's scale made of its points stays.
  setPose(frame, pose) {
    for (const chunk of this.chunks) {
      if (chunk.frame !== frame) continue;
      chunk.pose = withoutScale(pose);
      this.#place(chunk);
    }
  }

  move(first, last, matrix) {
    for (const chunk of this.chunks) {
      if (chunk.frame < first || chunk.frame > last) continue;
      const moved = multiply(matrix, chunk.pose);
      chunk.grown *= scaleOf(moved);
      chunk.pose = withoutScale(moved);
      this.#place(chunk);
    }
  }

  // Some points of each chunk where they are now, and how high above their camera.
  samples(up) {
    const found = [];
    const step = Math.ceil(this.chunks.length / MOST_SAMPLED) || 1;
    for (let number = 0; number < this.chunks.length; number += step) {
      const { pose, grown, samples } = this.chunks[number];
      const centre = centreOf(pose);
      for (const sample of samples) {
        const place = transform(pose, scaled(sample, grown));
        found.push({ place, above: dot(place, up) - dot(centre, up) });
      }
    }
    return found;
  }

  // Draws every n-th row: rows are in random order, so that fewer of them still show the whole.
  draw(skip) {
    this.#flush();
    const gl = this.gl, every = Math.min(skip, MOST_SKIPPED);
    gl.activeTexture(gl.TEXTURE0);
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    for (const place of [0, 1, 2, 3]) {
      gl.enableVertexAttribArray(place);
      gl.vertexAttribDivisor(place, 0);
    }
    for (const [first, count] of this.#ranges()) this.#drawRange(first, Math.floor(count / every), every);
    for (const place of [2, 3]) gl.disableVertexAttribArray(place);
  }

  // Of the point that `distance` finds smallest, in world coordinates; rows are read back for the occasion.
  nearest(distance) {
    this.#flush();
    let best = null, least = Infinity;
    for (const [first, count] of this.#ranges()) {
      const rows = this.#read(first, count);
      for (let row = 0; row < count; row++) {
        const at = row * ROW_BYTES, start = rows.getUint16(at + 10, true) * 16;
        const place = this.#worldPlace(rows, at, start);
        const isHidden = this.values[start + 15] <= NOWHEN;
        const found = isHidden ? Infinity
          : distance(place, rows.getUint8(at + 9) / 255, this.values.subarray(start + 12, start + 15));
        if (found < least) [best, least] = [place, found];
      }
    }
    return best;
  }

  clear() {
    for (const chunk of this.chunks) this.free.push(chunk.slot);
    Object.assign(this, { chunks: [], head: 0, count: 0, total: 0, pending: [] });
  }

  // First row and number of rows of each piece within one page, oldest first.
  #ranges(first = (this.head - this.count + this.capacity) % this.capacity, count = this.count) {
    const found = [];
    for (let row = first, left = count; left > 0;) {
      const page = Math.floor(row / PAGE_ROWS);
      const some = Math.min(left, (page + 1) * PAGE_ROWS - row, this.capacity - row);
      found.push([row, some]);
      [row, left] = [(row + some) % this.capacity, left - some];
    }
    return found;
  }

  // Binds the buffer that holds a row, made when it is first needed; the row's byte in it.
  #bind(row) {
    const gl = this.gl, page = Math.floor(row / PAGE_ROWS);
    while (this.pages.length <= page) {
      const rows = Math.min(PAGE_ROWS, this.capacity - this.pages.length * PAGE_ROWS), buffer = gl.createBuffer();
      gl.bindBuffer(gl.ARRAY_BUFFER, buffer);
      gl.bufferData(gl.ARRAY_BUFFER, rows * ROW_BYTES, gl.DYNAMIC_DRAW);
      this.pages.push({ rows, buffer });
    }
    gl.bindBuffer(gl.ARRAY_BUFFER, this.pages[page].buffer);
    return (row - page * PAGE_ROWS) * ROW_BYTES;
  }

  #drawRange(first, count, every) {
    const gl = this.gl, stride = ROW_BYTES * every, start = this.#bind(first);
    gl.vertexAttribIPointer(0, 3, gl.UNSIGNED_SHORT, stride, start);
    gl.vertexAttribPointer(1, 4, gl.UNSIGNED_BYTE, true, stride, start + 6);
    gl.vertexAttribIPointer(2, 1, gl.UNSIGNED_SHORT, stride, start + 10);
    gl.vertexAttribPointer(3, 3, gl.BYTE, true, stride, start + 12);
    gl.drawArrays(gl.POINTS, 0, count);
  }

  #read(first, count) {
    const rows = new DataView(new ArrayBuffer(count * ROW_BYTES)), start = this.#bind(first);
    this.gl.getBufferSubData(this.gl.ARRAY_BUFFER, start, rows);
    return rows;
  }

  #worldPlace(rows, at, start) {
    const [x, y, z] = [0, 2, 4].map((byte) => rows.getUint16(at + byte, true)), value = this.values;
    return [start, start + 4, start + 8].map(
      (row) => value[row] * x + value[row + 1] * y + value[row + 2] * z + value[row + 3],
    );
  }

  #hide(number) {
    const chunk = this.chunks.find((one) => one.number === number);
    if (!chunk) return;
    Object.assign(chunk, { number: null, frame: -1, time: NOWHEN, samples: [] });
    this.#place(chunk);
  }

  #makeRoom(wanted) {
    while (this.chunks.length && (this.count + wanted > this.capacity || !this.free.length)) {
      const oldest = this.chunks[0], over = this.count + wanted - this.capacity;
      const cut = this.free.length ? Math.min(over, oldest.count) : oldest.count;
      oldest.count -= cut;
      this.count -= cut;
      if (!oldest.count) this.free.push(this.chunks.shift().slot);
    }
  }

  #append(rows, count) {
    for (const [first, some] of this.#ranges(this.head, count)) {
      const from = ((first - this.head + this.capacity) % this.capacity) * ROW_BYTES;
      this.pending.push({ first, rows: rows.subarray(from, from + some * ROW_BYTES) });
    }
    this.head = (this.head + count) % this.capacity;
    this.count += count;
  }

  #flush() {
    const gl = this.gl;
    for (const { first, rows } of joined(this.pending)) gl.bufferSubData(gl.ARRAY_BUFFER, this.#bind(first), rows);
    this.pending = [];
    gl.bindTexture(gl.TEXTURE_2D, this.texture);
    const across = SLOTS_ACROSS * SLOT_FLOATS;
    for (const line of this.staleLines) {
      const texels = this.values.subarray(line * across, (line + 1) * across);
      gl.texSubImage2D(gl.TEXTURE_2D, 0, 0, line, SLOTS_ACROSS * TEXELS_PER_SLOT, 1, gl.RGBA, gl.FLOAT, texels);
    }
    this.staleLines.clear();
  }

  #place({ slot, pose, grown, origin, scale, time }) {
    const start = slot * SLOT_FLOATS, times = grown * scale;
    const at = transform(pose, scaled(origin, grown));
    for (let row = 0; row < 3; row++) {
      for (let axis = 0; axis < 3; axis++) this.values[start + 4 * row + axis] = pose[4 * row + axis] * times;
      this.values[start + 4 * row + 3] = at[row];
    }
    this.values.set([...centreOf(pose), time], start + 12);
    this.staleLines.add(Math.floor(slot / SLOTS_ACROSS));
  }
}

// Neighbouring pieces of one page as one.
function joined(pieces) {
  const found = [];
  for (const piece of pieces) {
    const last = found.at(-1), end = last ? last.first + last.count : -1;
    const isNext = piece.first === end && Math.floor(piece.first / PAGE_ROWS) === Math.floor(last.first / PAGE_ROWS);
    const count = piece.rows.length / ROW_BYTES;
    if (isNext) Object.assign(last, { count: last.count + count, parts: [...last.parts, piece.rows] });
    else found.push({ first: piece.first, count, parts: [piece.rows] });
  }
  return found.map(({ first, count, parts }) => {
    const rows = new Uint8Array(count * ROW_BYTES);
    let at = 0;
    for (const part of parts) {
      rows.set(part, at);
      at += part.length;
    }
    return { first, rows };
  });
}

function packed(rows, count, slot, normals) {
  const all = new Uint8Array(count * ROW_BYTES);
  for (let row = 0; row < count; row++) {
    const to = row * ROW_BYTES;
    for (let byte = 0; byte < 10; byte++) all[to + byte] = rows[10 * row + byte];
    all[to + 10] = slot & 255;
    all[to + 11] = slot >> 8;
    if (normals) for (let axis = 0; axis < 3; axis++) all[to + 12 + axis] = normals[3 * row + axis];
  }
  return all;
}

function samplesOf(rows, count, origin, scale) {
  const view = new DataView(rows.buffer, rows.byteOffset), step = Math.max(1, Math.floor(count / SAMPLES));
  const found = [];
  for (let row = 0; row < count && found.length < SAMPLES; row += step) {
    found.push([0, 1, 2].map((axis) => origin[axis] + view.getUint16(10 * row + 2 * axis, true) * scale));
  }
  return found;
}
