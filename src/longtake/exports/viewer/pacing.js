// Draws when there is something new, never faster than the graphics card follows, and fewer points while that is slow.

const SLOW_MS = 33, QUICK_MS = 11;
const MOST_SKIPPED_ROWS = 8;
const REST_MS = 300, LONGEST_WAIT_MS = 300;

export class Pacer {
  // `draw(now, skip)` says whether it wants to go on, as in a flight.
  constructor(gl, draw) {
    Object.assign(this, { gl, draw, skip: 1, isAsked: false, isWanted: false, fence: null, begunMs: 0, tookMs: 0 });
    Object.assign(this, { notBeforeMs: 0, rest: 0, numDrawn: 0 });
  }

  // Something changed.
  invalidate() {
    this.isWanted = true;
    this.#ask();
  }

  // When all that was asked for is on the screen, with all of its points.
  async settled() {
    while (this.isWanted || this.fence || this.drawnSkip !== 1) await new Promise((done) => setTimeout(done, 10));
  }

  #ask() {
    if (!this.isAsked) requestAnimationFrame((now) => this.#tick(now));
    this.isAsked = true;
  }

  #tick(now) {
    this.isAsked = false;
    if (this.gl.isContextLost()) return;
    if (!this.#hasEnded() || performance.now() < this.notBeforeMs) return this.#ask();
    if (!this.isWanted) return this.#finish();
    this.isWanted = false;
    this.#drawOnce(now, this.skip);
    this.#ask();
  }

  #drawOnce(now, skip) {
    this.begunMs = performance.now();
    if (this.draw(now, skip)) this.isWanted = true;
    this.numDrawn += 1;
    this.fence = this.gl.fenceSync(this.gl.SYNC_GPU_COMMANDS_COMPLETE, 0);
    this.gl.flush();
    this.drawnSkip = skip;
  }

  // Whether the card has drawn the last picture; what it took decides how many points the next one has.
  #hasEnded() {
    if (!this.fence) return true;
    const status = this.gl.clientWaitSync(this.fence, 0, 0);
    if (status === this.gl.TIMEOUT_EXPIRED) return false;
    this.gl.deleteSync(this.fence);
    this.fence = null;
    this.tookMs = performance.now() - this.begunMs;
    this.notBeforeMs = this.tookMs > SLOW_MS ? performance.now() + Math.min(LONGEST_WAIT_MS, this.tookMs) : 0;
    if (this.drawnSkip !== this.skip) return true;
    if (this.tookMs > SLOW_MS) this.skip = Math.min(MOST_SKIPPED_ROWS, this.skip * 2);
    else if (this.tookMs < QUICK_MS) this.skip = Math.max(1, this.skip / 2);
    return true;
  }

  // When nothing moves any more, all points are drawn, however long that takes.
  #finish() {
    clearTimeout(this.rest);
    if (this.drawnSkip === 1) return;
    this.rest = setTimeout(() => {
      if (!this.isWanted && !this.fence && !this.gl.isContextLost()) this.#drawOnce(performance.now(), 1);
      this.#ask();
    }, REST_MS);
  }
}
