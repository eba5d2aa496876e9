// A camera of this device, sent as JPEG pictures: the newest counts, and no more than two are on their way.

import { encodeFrame } from "./messages.js";

const LONGER_SIDE = 640, QUALITY = 0.85, MOST_UNDER_WAY = 2;

// The camera, or an error whose message says what to do.
export async function openCamera(deviceId = undefined) {
  if (!navigator.mediaDevices?.getUserMedia) {
    throw new Error("Browsers give their cameras only to pages over https or on this machine. Start the server with "
      + "--https and open the address that it prints.");
  }
  const video = { deviceId: deviceId ? { exact: deviceId } : undefined, facingMode: "environment", width: { ideal: 1280 } };
  try {
    return await navigator.mediaDevices.getUserMedia({ video, audio: false });
  } catch (error) {
    throw new Error(PROBLEMS[error.name] ?? `The camera cannot be opened (${error.name}).`);
  }
}

const PROBLEMS = {
  NotAllowedError: "This page may not use the camera. Allow it beside the address above, then try again.",
  NotFoundError: "There is no camera on this device. Plug one in, or use a phone.",
  OverconstrainedError: "This camera is not there any more. Choose another.",
  NotSupportedError: "This browser cannot open cameras. Use another browser, or a phone.",
  NotReadableError: "The camera is in use by another program. Close that, then try again.",
};

export class CameraFeed {
  // `send(bytes)` puts a message on the socket; `onEnd(sentence)` hears when the camera is gone.
  constructor(stream, { framesPerS, nextSequence, startS, send, onEnd }) {
    Object.assign(this, { stream, framesPerS, sequence: nextSequence, startS, send, underWay: 0, isRunning: true });
    this.begunMs = performance.now();
    this.video = document.createElement("video");
    Object.assign(this.video, { srcObject: stream, muted: true, playsInline: true });
    this.canvas = document.createElement("canvas");
    stream.getVideoTracks()[0].addEventListener("ended", () => {
      this.stop();
      onEnd("The camera was unplugged or taken away.");
    });
  }

  async start() {
    await this.video.play();
    while (this.isRunning) {
      const begunMs = performance.now();
      if (this.underWay < MOST_UNDER_WAY) await this.#sendOne();
      await new Promise((done) => setTimeout(done, Math.max(4, 1000 / this.framesPerS - (performance.now() - begunMs))));
    }
  }

  // A frame was taken or dropped.
  heard() {
    this.underWay = Math.max(0, this.underWay - 1);
  }

  // A connection that came back says what it expects.
  goOn(nextSequence) {
    Object.assign(this, { sequence: Math.max(this.sequence, nextSequence), underWay: 0 });
  }

  stop() {
    this.isRunning = false;
    for (const track of this.stream.getTracks()) track.stop();
  }

  async #sendOne() {
    const { videoWidth: width, videoHeight: height } = this.video;
    if (!width) return;
    const scale = Math.min(1, LONGER_SIDE / Math.max(width, height));
    Object.assign(this.canvas, { width: Math.round(width * scale), height: Math.round(height * scale) });
    const timeUs = this.startS * 1e6 + (performance.now() - this.begunMs) * 1000;
    this.canvas.getContext("2d").drawImage(this.video, 0, 0, this.canvas.width, this.canvas.height);
    const jpeg = await new Promise((done) => this.canvas.toBlob(done, "image/jpeg", QUALITY));
    const message = await encodeFrame(this.sequence, timeUs, jpeg);
    if (this.isRunning && this.send(message)) {
      this.sequence += 1;
      this.underWay += 1;
    }
  }
}
