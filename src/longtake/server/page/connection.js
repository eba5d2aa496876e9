// A session's socket: it comes back by itself, goes on after the last event it heard, and lends credit for points.

import { KIND, decode } from "./messages.js";

const CREDIT_BYTES = 6_000_000;
const LEND_BYTES = 500_000;
const FIRST_WAIT_S = 0.5, LONGEST_WAIT_S = 8;
const NORMAL_CLOSE = 1000, SMALLEST_CLIENT = 8;

export class Connection {
  // `on` has state(name, more), event(record), opened(), points(message), preview(message).
  constructor(api, id, budget, on) {
    Object.assign(this, { api, id, budget, on, socket: null, lastId: 0, waitS: FIRST_WAIT_S, isEnded: false, owed: 0 });
    this.client = Array.from(crypto.getRandomValues(new Uint8Array(SMALLEST_CLIENT)), (byte) => byte.toString(16)
      .padStart(2, "0")).join("");
    this.wake = () => { if (!document.hidden) this.#wakeUp(); };
    document.addEventListener("visibilitychange", this.wake);
    window.addEventListener("online", this.wake);
  }

  get isOpen() {
    return this.socket?.readyState === WebSocket.OPEN;
  }

  async open() {
    this.on.state("connecting");
    try {
      await this.api.get(`/v1/sessions/${this.id}`);
      const path = `/v1/sessions/${this.id}/live?after=${this.lastId}&client=${this.client}`;
      const socket = await this.api.socket(path);
      if (this.isEnded) return socket.close();
      this.socket = socket;
    } catch (error) {
      if (error.status === 404) return this.#end("gone");
      return this.#retry();
    }
    this.socket.onopen = () => this.#opened();
    this.socket.onmessage = ({ data }) => this.#hear(data);
    this.socket.onclose = ({ code }) => this.#closed(code);
  }

  send(record) {
    if (!this.isOpen) return false;
    this.socket.send(JSON.stringify(record));
    return true;
  }

  sendBytes(bytes) {
    if (!this.isOpen) return false;
    this.socket.send(bytes);
    return true;
  }

  close() {
    this.isEnded = true;
    clearTimeout(this.timer);
    document.removeEventListener("visibilitychange", this.wake);
    window.removeEventListener("online", this.wake);
    this.socket?.close(NORMAL_CLOSE);
  }

  #opened() {
    this.waitS = FIRST_WAIT_S;
    this.owed = 0;
    this.on.opened();
    this.send({ type: "view.budget", ...this.budget });
    this.send({ type: "credit", bytes: CREDIT_BYTES });
  }

  #hear(data) {
    if (typeof data === "string") {
      const event = JSON.parse(data);
      if (event.id > this.lastId) this.lastId = event.id;
      this.on.event(event, event.client === this.client);
      return;
    }
    const message = decode(data);
    if (message.kind === KIND.POINTS) this.on.points(message);
    if (message.kind === KIND.PREVIEW) this.on.preview(message);
    this.owed += data.byteLength;
    this.#lend();
  }

  // A page that nobody looks at lends nothing: points wait on the server, the text goes on.
  #lend() {
    if (document.hidden || this.owed < LEND_BYTES) return;
    if (this.send({ type: "credit", bytes: this.owed })) this.owed = 0;
  }

  #wakeUp() {
    this.#lend();
    if (!this.isEnded && this.timer && !this.isOpen) {
      clearTimeout(this.timer);
      this.timer = null;
      this.open();
    }
  }

  #closed(code) {
    this.socket = null;
    if (this.isEnded) return;
    if (code === NORMAL_CLOSE) this.#end("closed");
    else this.#retry();
  }

  #retry() {
    if (this.isEnded) return;
    this.on.state("reconnecting", { seconds: this.waitS });
    this.timer = setTimeout(() => { this.timer = null; this.open(); }, this.waitS * 1000);
    this.waitS = Math.min(LONGEST_WAIT_S, this.waitS * 2);
  }

  #end(name) {
    this.close();
    this.on.state(name);
  }
}
