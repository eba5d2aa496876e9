// Frames in the order of their index, with times and poses; of a very long video older ones are thinned out.

import { multiply } from "./view/algebra.js";

const MOST_FRAMES = 16384;

export class FrameTrack {
  constructor() {
    this.frames = [];
  }

  get last() {
    return this.frames.at(-1) ?? null;
  }

  get count() {
    return this.frames.length;
  }

  set(frame) {
    const at = this.#place(frame.index);
    if (this.frames[at]?.index === frame.index) this.frames[at] = frame;
    else this.frames.splice(at, 0, frame);
    if (this.frames.length > MOST_FRAMES) this.#thin();
  }

  get(index) {
    const found = this.frames[this.#place(index)];
    return found?.index === index ? found : null;
  }

  move(first, last, matrix) {
    for (let at = this.#place(first); at < this.count && this.frames[at].index <= last; at++) {
      this.frames[at].pose = multiply(matrix, this.frames[at].pose);
    }
  }

  // The newest frame until a time, or the first one.
  until(time) {
    let low = 0, high = this.count;
    while (low < high) {
      const middle = (low + high) >> 1;
      if (this.frames[middle].time <= time + 1e-6) low = middle + 1;
      else high = middle;
    }
    return this.frames[Math.max(0, low - 1)] ?? null;
  }

  // Where an index is, or would be; most come at the end.
  #place(index) {
    let at = this.count;
    if (at && this.frames[at - 1].index < index) return at;
    let low = 0;
    while (low < at) {
      const middle = (low + at) >> 1;
      if (this.frames[middle].index < index) low = middle + 1;
      else at = middle;
    }
    return low;
  }

  #thin() {
    const half = MOST_FRAMES / 2;
    this.frames = this.frames.filter((_, at) => at >= half || at % 2 === 0);
  }
}
