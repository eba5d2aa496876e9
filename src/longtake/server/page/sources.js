// Where frames come from: the dialog that starts a house, a camera, a phone, a file, or opens what was saved.

import { byId, bytes, counted, element, icon, many } from "./dom.js";
import { drawQr, qrCode } from "./qr.js";
import { CAMERAS, nameOf } from "./status.js";
import { openCamera } from "./webcam.js";

const LOCAL_NAMES = ["localhost", "127.0.0.1", "[::1]"];
const HOUSE = { seed: 9, frames: 600 };
const KINDS = {
  house: ["House", "A walk through a house that the server makes up: another seed, another house."],
  webcam: ["Webcam", "The camera of this device; its pictures go to this server and nowhere else."],
  phone: ["Phone", "A phone films, this page watches."],
  upload: ["Upload", "A video file; it is mapped and can be asked about while it runs."],
  saved: ["Saved sessions", "Sessions of this server, running and on disk."],
};

export class Sources {
  // `page` has open(request), watch(id), remove(id), film(stream, settings).
  constructor(api, settings, page) {
    Object.assign(this, { api, settings, page, kind: null, fields: {}, stream: null });
    for (const button of byId("sources").children) {
      button.addEventListener("click", () => this.open(button.dataset.source));
    }
    byId("start-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#start();
    });
    byId("start").addEventListener("close", () => this.#close());
  }

  async open(kind) {
    const [title, words] = KINDS[kind];
    Object.assign(this, { kind, fields: {} });
    byId("start-heading").textContent = title;
    byId("start-words").textContent = words;
    byId("settings").hidden = kind === "saved";
    byId("start-button").hidden = kind === "saved";
    byId("start-button").disabled = false;
    byId("start-button").textContent = kind === "phone" ? "Make a code" : "Start";
    byId("start-progress").hidden = true;
    this.#say("");
    byId("start-own").replaceChildren();
    if (!byId("start").open) byId("start").showModal();
    try {
      await this[`_${kind}`](byId("start-own"));
    } catch (error) {
      this.#say(error.message);
    }
  }

  _house(place) {
    this.fields.seed = element("input", { type: "number", min: 0, step: 1, value: HOUSE.seed });
    this.fields.frames = element("input", { type: "number", min: 2, max: 100000, step: 1, value: HOUSE.frames });
    place.append(element("div", { class: "fields" },
      element("label", { text: "Seed (the models never saw those that end in 9)" }, this.fields.seed),
      element("label", { text: "Frames" }, this.fields.frames)));
  }

  async _webcam(place) {
    byId("start-button").disabled = true;
    this.#say("Waiting for the camera: allow it if the browser asks.", false);
    this.stream = await openCamera();
    if (!byId("start").open) return this.#close();
    const video = element("video", { class: "preview-video", muted: true, playsinline: true, autoplay: true });
    const devices = (await navigator.mediaDevices.enumerateDevices()).filter(({ kind }) => kind === "videoinput");
    const choice = element("select", { onchange: () => this.#changeCamera(choice.value, video) },
      ...devices.map(({ deviceId, label }, at) => element("option", { value: deviceId, text: label || `Camera ${at + 1}` })));
    video.srcObject = this.stream;
    place.replaceChildren(video, element("div", { class: "fields" }, element("label", { text: "Camera" }, choice)));
    byId("start-button").disabled = false;
    this.#say("");
  }

  _phone(place) {
    if (LOCAL_NAMES.includes(location.hostname)) {
      byId("start-button").disabled = true;
      place.append(element("p", { text: "This page was opened under a name that only this machine knows. Start the server with "
        + "--host 0.0.0.0 --https, open the first address that it prints, and choose Phone again." }));
    } else if (!isSecureContext) {
      byId("start-button").disabled = true;
      place.append(element("p", { text: "Phones give their cameras only to pages over https. Start the server with --https." }));
    } else {
      place.append(element("p", { text: "Makes a session, and a code that opens it on the phone. Both must be in one network." }));
    }
  }

  _upload(place) {
    const input = element("input", { type: "file", accept: "video/*,.mkv,.mov,.mp4,.webm,.avi", "aria-label": "Video file" });
    const zone = element("div", { class: "drop" }, element("p", { text: "Drop a video here, or choose one." }), input);
    zone.addEventListener("dragover", (event) => { event.preventDefault(); zone.classList.add("over"); });
    zone.addEventListener("dragleave", () => zone.classList.remove("over"));
    zone.addEventListener("drop", (event) => {
      event.preventDefault();
      zone.classList.remove("over");
      input.files = event.dataTransfer.files;
    });
    this.fields.file = input;
    place.append(zone);
  }

  async _saved(place) {
    const { sessions, damaged } = await this.api.get("/v1/sessions");
    const newest = [...sessions].sort((a, b) => b.active_s - a.active_s);
    const broken = Object.keys(damaged ?? {}).length;
    if (broken) this.#say(`${counted(broken, "saved session")} cannot be read; the server's log says why.`);
    if (!newest.length) return place.append(element("p", { text: "There is none yet." }));
    place.append(element("div", { class: "sessions" }, ...newest.map((session) => this.#entry(session))));
  }

  // A session, and beside it how to be rid of it: asked once more before anything is removed.
  #entry(session) {
    const name = nameOf(session), short = session.id.slice(0, 6);
    const isShown = session.id === this.page.id;
    const row = element("div", { class: "session" }), open = element("button", {
      type: "button", class: "open", "aria-current": isShown ? "true" : null, onclick: () => this.#watch(session.id),
    }, element("strong", { text: isShown ? `${name} (shown now)` : name, dir: "auto" }),
    element("span", { class: "soft", text: `${dateInWords(session.created_s)} · ${aboutSession(session)} · ${short}${originOf(session)}` }),
    ...(session.problem ? [element("small", { class: "problem", text: session.problem })] : []));
    const ask = element("button", { type: "button", class: "plain", "aria-label": `Delete ${name} ${short}`, title: "Delete",
      onclick: () => { row.replaceChildren(sure); keep.focus(); } }, icon("trash"));
    const keep = element("button", { type: "button", text: "Keep", onclick: () => { row.replaceChildren(open, ask); ask.focus(); } });
    const drop = element("button", { type: "button", class: "danger", text: "Delete", onclick: () => this.#remove(session.id, row) });
    const sure = element("p", { class: "sure", role: "group" },
      element("span", { text: `Delete ${name} ${short}, with all that was recorded and said?` }), keep, drop);
    row.append(open, ask);
    return row;
  }

  async #remove(id, row) {
    try {
      await this.page.remove(id);
      row.remove();
      if (!byId("start-own").querySelector(".session")) byId("start-own").append(element("p", { text: "There is none yet." }));
    } catch (error) {
      this.#say(error.message);
    }
  }

  async #start() {
    byId("start-button").disabled = true;
    this.#say("");
    try {
      await this[`start_${this.kind}`]({ ...this.settings.request });
    } catch (error) {
      this.#say(error.message);
      if (wantsRoom(error)) byId("start-problem").append(" ", this.#toSaved());
      byId("start-button").disabled = false;
    }
  }

  async start_house(request) {
    const seed = Math.max(0, Math.round(Number(this.fields.seed.value) || 0));
    const frames = Math.max(2, Math.round(Number(this.fields.frames.value) || 2));
    await this.page.open({ ...request, source: houseOf(seed, frames) });
    byId("start").close();
  }

  async start_webcam(request) {
    const id = await this.page.open({ delivery: "newest", ...request, source: "push", title: CAMERAS.webcam });
    this.page.film(id, this.stream, this.settings.framesPerS);
    this.stream = null;
    byId("start").close();
  }

  async start_phone(request) {
    const id = await this.page.open({ delivery: "newest", ...request, source: "push", title: CAMERAS.phone });
    const token = this.api.token ? `&token=${encodeURIComponent(this.api.token)}` : "";
    const address = `${location.origin}/#film=${id}${token}`, code = qrCode(address);
    if (!code) throw new Error("The address is too long for a code; type it on the phone instead.");
    const canvas = element("canvas", { class: "qr", role: "img", "aria-label": "QR code of the address below" });
    drawQr(canvas, code);
    byId("start-own").replaceChildren(canvas, element("p", { class: "address", text: address }),
      element("p", { class: "soft", text: "Point the phone's camera at the code. The first time it warns of a certificate that the "
        + "server made itself: go on. Who has this code can film here." }));
    byId("start-button").hidden = true;
  }

  async start_upload(request) {
    const [file] = this.fields.file.files;
    if (!file) throw new Error("Choose a video first.");
    const bar = byId("start-progress");
    const id = await this.page.open({ ...request, source: "upload", title: file.name.slice(-200) });
    bar.hidden = false;
    try {
      await this.api.upload(`/v1/sessions/${id}/video`, file, (share) => {
        bar.value = share;
        this.#say(`${Math.round(share * 100)} % of ${bytes(file.size)} sent`, false);
      });
    } catch (error) {
      bar.hidden = true;
      await this.page.remove(id).catch(() => {}); // nothing will come into it
      throw error;
    }
    byId("start").close();
  }

  // Where sessions that take the room can be ended.
  #toSaved() {
    return element("button", { type: "button", class: "link", text: "Saved sessions", onclick: () => this.open("saved") });
  }

  #watch(id) {
    byId("start").close();
    this.page.watch(id);
  }

  async #changeCamera(deviceId, video) {
    try {
      const stream = await openCamera(deviceId);
      this.#release();
      this.stream = stream;
      video.srcObject = stream;
      this.#say("");
    } catch (error) {
      this.#say(error.message);
    }
  }

  #close() {
    this.#release();
    byId("start-own").replaceChildren();
  }

  #release() {
    for (const track of this.stream?.getTracks() ?? []) track.stop();
    this.stream = null;
  }

  #say(words, isProblem = true) {
    const place = byId("start-problem");
    place.hidden = !words;
    place.textContent = words;
    place.classList.toggle("problem", isProblem);
  }
}

const houseOf = (seed, frames) => `world:${seed}?frames=${frames}&size=126x98`;

// What is shown where nothing runs: the same as the dialog proposes.
export const FIRST_HOUSE = houseOf(HOUSE.seed, HOUSE.frames);

// Whether ending another session helps.
export function wantsRoom(error) {
  return ["busy", "quota"].includes(error.code);
}

function aboutSession(session) {
  const state = stateInWords(session);
  const kinds = session.model && session.language ? "" : session.model ? ", map only" : ", answers only";
  return `${state}${kinds}, ${framesInWords(session)}, used ${ageInWords(Date.now() / 1000 - session.active_s)} ago`;
}

// A fork is called as the session that it goes on from: its number tells which one that is, also where it is gone.
function originOf(session) {
  return session.fork_of ? `, fork of ${nameOf(session)} ${session.fork_of.slice(0, 6)}` : "";
}

// Of a house also how many it was to have, which tells one walk from another.
function framesInWords({ source, num_frames: count }) {
  const all = Number(/^world\b.*[?&]frames=(\d+)/.exec(source)?.[1] ?? count);
  return all === count ? counted(count, "frame") : `${many(count)} of ${counted(all, "frame")}`;
}

function ageInWords(seconds) {
  if (seconds < 90) return `${Math.max(0, Math.round(seconds))} s`;
  if (seconds < 5400) return `${Math.round(seconds / 60)} min`;
  return seconds < 129600 ? `${Math.round(seconds / 3600)} h` : counted(Math.round(seconds / 86400), "day");
}

// The day, and the time of it, as people here write them.
function dateInWords(createdS) {
  return new Date(createdS * 1000).toLocaleString([], { day: "numeric", month: "short", hour: "2-digit", minute: "2-digit", second: "2-digit" });
}

function stateInWords(session) {
  if (session.problem) return "stopped";
  if (session.finished) return "ended";
  if (session.paused) return "paused";
  if (session.state === "saved") return "on disk";
  if (session.state === "waiting") return session.source === "upload" ? "no video yet" : "no frame yet";
  return session.source === "push" ? "in memory" : "running";
}
