// The newest picture with its depth and confidence, and the figures of the session.

import { byId, bytes, clock, element, many, seconds } from "./dom.js";
import { nameOf } from "./status.js";

const LIVE = new Set(["Frames/s", "Network", "Dropped", "First word", "Memory"]); // of a finished take they say nothing
const SHOW_MS = 80, SHOW_SLOWLY_MS = 500;

export class CameraPanel {
  // Pictures that come faster than they are shown take each other's place; slowly where drawing is slow.
  constructor(isSlow) {
    Object.assign(this, { showMs: isSlow ? SHOW_SLOWLY_MS : SHOW_MS, waiting: new Map(), timer: 0, onImage: () => {} });
    this.images = { image: byId("live-image"), depth: byId("depth-image"), confidence: byId("confidence-image") };
    this.figures = new Map();
    for (const name of ["Video", "Frames", "Frames/s", "Network", "Dropped", "First word", "Memory", "Points"]) {
      const value = element("dd", { text: "–" });
      byId("figures").append(element("div", { class: LIVE.has(name) ? "live-figure" : null }, element("dt", { text: name }), value));
      this.figures.set(name, value);
    }
  }

  clear() {
    this.waiting.clear();
    for (const image of Object.values(this.images)) this.#show(image, null);
    byId("depth-range").textContent = "";
  }

  // A picture of a take that is only looked at.
  showStill(address) {
    this.#show(this.images.image, address);
  }

  show(message) {
    this.waiting.set(message.fields.of, message);
    this.timer ||= setTimeout(() => {
      this.timer = 0;
      for (const one of this.waiting.values()) this.#showOne(one);
      this.waiting.clear();
    }, this.showMs);
  }

  update(state, points) {
    const session = state.session;
    byId("source-name").textContent = session ? nameOf(session) : "";
    this.#set("Video", clock(state.timeS));
    this.#set("Frames", many(state.numFrames));
    this.#set("Frames/s", state.framesPerS ? state.framesPerS.toFixed(1) : "–");
    this.#set("Network", state.stepS === null ? "–" : seconds(state.stepS), "a frame");
    this.#set("Dropped", many(state.numDropped), state.numUnreadable ? `${state.numUnreadable} unreadable` : "");
    this.#set("First word", state.firstTokenS === null ? "–" : seconds(state.firstTokenS));
    this.#set("Memory", state.heldBytes === null ? "–" : bytes(state.heldBytes), session ? `of ${bytes(session.memory_bytes)}` : "");
    this.#set("Points", many(points));
  }

  #showOne({ fields, payload }) {
    const image = this.images[fields.of];
    if (!image) return;
    this.#show(image, URL.createObjectURL(new Blob([payload], { type: "image/jpeg" })));
    if (fields.of === "image") this.onImage(payload);
    if (fields.of === "depth" && fields.far) {
      byId("depth-range").textContent = ` ${fields.near.toPrecision(2)}–${fields.far.toPrecision(2)}`;
    }
  }

  #set(name, value, more = "") {
    const place = this.figures.get(name);
    if (place.textContent === (more ? `${value} ${more}` : value)) return;
    place.replaceChildren(value, ...(more ? [element("small", { text: ` ${more}` })] : []));
  }

  #show(image, address) {
    const before = image.getAttribute("src");
    image.hidden = address === null;
    if (address === null) image.removeAttribute("src");
    else image.src = address;
    if (before?.startsWith("blob:")) URL.revokeObjectURL(before);
  }
}
