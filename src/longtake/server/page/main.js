// The page: one session is watched at a time; its events go through the state to every panel.

import { Api } from "./api.js";
import { CameraPanel } from "./camera_panel.js";
import { Chat } from "./chat.js";
import { Choose } from "./choose.js";
import { Compare } from "./compare.js";
import { Connection } from "./connection.js";
import { byId, clock } from "./dom.js";
import { fillDownloads } from "./downloads.js";
import { Evidence } from "./evidence.js";
import { earlierFrames } from "./history.js";
import { Notes } from "./notes.js";
import { showNotice } from "./notice.js";
import { SessionState } from "./session_state.js";
import { Settings } from "./settings.js";
import { FIRST_HOUSE, Sources, wantsRoom } from "./sources.js";
import { buttonOf, nameOf, newestRunning, statusOf } from "./status.js";
import { setUpTheme } from "./theme.js";
import { Timeline } from "./timeline.js";
import { askToken } from "./token.js";
import { ViewPanel } from "./view_panel.js";
import { CameraFeed, openCamera } from "./webcam.js";

const FIRST_QUESTION_AFTER = 12;
const MOST_FETCHES = 8;
const NO_MAP = "This session does not map, so that nobody knows where the camera was.";
const PARTS_MS = 1000;
const PREVIEW_PX = 320;
const REFRESH_MS = 250, REFRESH_SLOWLY_MS = 1000;

class Page {
  constructor() {
    Object.assign(this, { link: { name: "loading" }, connection: null, feed: null, id: null, asksFirst: false, asksParts: null, heardMs: 0 });
    this.api = new Api(askToken);
    this.state = new SessionState();
    this.view = new ViewPanel();
    this.camera = new CameraPanel(this.view.isSlow);
    this.camera.onImage = (jpeg) => this.view.setPicture(jpeg).catch(() => {});
    this.settings = new Settings(this.api);
    this.evidence = new Evidence(() => this.state.tracks, (frame, px) => this.#picture(frame, px), {
      lightUp: (span) => this.#lightUp(span), flyTo: (moment, frame) => this.#flyToMoment(moment, frame),
    });
    this.notes = new Notes();
    this.chat = new Chat(this.state, this.evidence, (record) => this.#send(record));
    this.timeline = new Timeline(this.state, (frame) => this.#flyToFrame(frame), this.view.isSlow);
    this.sources = new Sources(this.api, this.settings, this);
    this.compare = new Compare(this.api, () => this.id);
    this.choose = new Choose(this.api, () => this.id);
    fillDownloads(this.api, () => this.id, () => this.view.photograph(), (words) => this.notify(words));
    this.state.listen((event, isLive) => this.#hear(event, isLive));
    this.#wireButtons();
    setInterval(() => this.#refresh(), this.view.isSlow ? REFRESH_SLOWLY_MS : REFRESH_MS);
  }

  // What the address asks for: a session to watch, one to film for; else what runs, whoever began it. Where nothing does,
  // a house, so that there is something to see.
  async begin() {
    const wanted = new URLSearchParams(location.hash.slice(1));
    if (wanted.has("token")) this.api.setToken(wanted.get("token"));
    try {
      await this.settings.load();
      if (wanted.has("film")) return await this.#filmFor(wanted.get("film"));
      if (wanted.has("session")) return this.watch(wanted.get("session"));
      await this.#showNewest();
    } catch (error) {
      this.#fail(error);
    }
  }

  async open(request) {
    this.#setLink({ name: "opening" });
    try {
      const session = await this.api.post("/v1/sessions", request);
      this.watch(session.id);
      return session.id;
    } catch (error) {
      if (this.connection) this.#setLink({ name: "open" });
      throw error;
    }
  }

  watch(id) {
    this.#leave();
    Object.assign(this, { id, heardMs: performance.now(), lacksBeginning: false, lacksConversation: true });
    Object.assign(this, { flownTo: null, stillOf: null });
    history.replaceState(null, "", `#session=${id}`);
    this.state.reset();
    for (const panel of [this.view, this.camera, this.chat]) panel.clear();
    this.notify("");
    const budget = { points: this.view.viewer ? this.view.capacity : 0, previews: true, preview_px: PREVIEW_PX };
    this.connection = new Connection(this.api, id, budget, {
      state: (name, more) => this.#setLink({ name, ...more }),
      opened: () => { this.#setLink({ name: "open" }); this.view.beginAnew(); this.notify(""); },
      event: (event, isOwn) => this.state.apply(event, isOwn),
      points: (message) => this.view.addPoints(message, this.state),
      preview: (message) => this.camera.show(message),
    });
    this.connection.open();
  }

  film(id, stream, framesPerS) {
    const begin = () => {
      this.feed = new CameraFeed(stream, {
        framesPerS, nextSequence: this.state.session.next_sequence, startS: this.state.timeS,
        send: (message) => this.connection.sendBytes(message), onEnd: (words) => this.notify(words),
      });
      this.feed.start().catch((error) => this.notify(`The camera stopped (${error.name}).`));
    };
    this.onceDescribed = begin;
    if (this.state.session?.id === id) begin();
  }

  notify(words, actions = []) {
    showNotice(words, actions);
  }

  // Ends a session for good; whoever watches it is told.
  async remove(id) {
    await this.api.request("DELETE", `/v1/sessions/${id}`);
  }

  async #showNewest() {
    const { sessions } = await this.api.get("/v1/sessions"), take = sessions.find((one) => one.read_only);
    const shown = take ?? newestRunning(sessions); // a take is of longtake view, where nothing can be opened
    if (shown) this.watch(shown.id);
    else await this.#openHouse();
  }

  async #openHouse() {
    this.asksFirst = true;
    await this.open({ source: FIRST_HOUSE });
  }

  async #filmFor(id) {
    const stream = await openCamera();
    this.watch(id);
    this.film(id, stream, this.settings.framesPerS);
  }

  #leave() {
    this.feed?.stop();
    this.connection?.close();
    Object.assign(this, { feed: null, connection: null, onceDescribed: null });
    this.#markSource(null);
  }

  // The button that stands for what is watched.
  #markSource(session) {
    const kind = session && buttonOf(session);
    for (const button of byId("sources").children) {
      if (button.dataset.source === kind) button.setAttribute("aria-current", "true");
      else button.removeAttribute("aria-current");
    }
    document.title = session ? `${nameOf(session)} · longtake` : "longtake";
  }

  #hear(event, isLive) {
    if (event.type === "frame.known") this.#showFrames([this.state.tracks.get(event.index)]);
    if (event.type === "window.moved") this.view.move(event.spans);
    if (event.type === "frame.known" || event.type === "input_frame.ack") this.heardMs = performance.now();
    if (event.type === "input_frame.ack" || event.type === "input_frame.dropped") this.feed?.heard();
    if (event.type === "session.updated") this.#described(event);
    if (event.type === "session.finished") this.#offerQuestions();
    if (event.response) this.chat.update(event.response);
    if (event.type === "watch.fired") this.chat.update(`${event.watch} ${event.id}`);
    if (event.type === "error" && !event.response && isLive && !isStale(event)) this.notify(event.message);
    if (event.type === "input_frame.unreadable" && isLive && event.message) this.notify(event.message);
    if (event.type === "history.gone") this.lacksBeginning = true;
    if (isLive && mayChangeParts(event)) this.#learnParts();
    this.#askFirst(isLive);
    this.timeline.invalidate();
  }

  #offerQuestions() {
    this.chat.showWatches(this.state.session);
    this.chat.offer(this.state.session, this.settings.models);
  }

  #described(event) {
    this.#offerQuestions();
    this.notes.show(this.state.session);
    this.#markSource(this.state.session);
    if (event.session && this.onceDescribed) {
      this.onceDescribed();
      this.onceDescribed = null;
    } else if (event.session) this.feed?.goOn(event.session.next_sequence);
    if (event.session && this.lacksBeginning) this.#fillBeginning(this.id);
    if (event.session && this.lacksConversation) this.#fillConversation(this.id, event.session);
    if (this.state.session?.problem) this.notify(this.state.session.problem);
    this.#refresh();
  }

  async #fillBeginning(id) {
    this.lacksBeginning = false;
    try {
      const frames = await this.#earlierFrames(id);
      if (id !== this.id) return;
      this.state.addEarlier(frames);
      this.#showFrames(frames);
      this.timeline.invalidate();
    } catch (error) {
      this.notify(`The beginning of this session cannot be shown. ${error.message}`);
    }
  }

  // Of the version that this page has heard of: one that comes on the way moves what is here, and not what is fetched.
  async #earlierFrames(id) {
    for (let left = MOST_FETCHES; ; left--) {
      const { frames, version } = await earlierFrames(this.api, id, this.state.tracks);
      if (version === this.state.version || left === 0 || id !== this.id) return frames;
    }
  }

  // In how many parts the map is no event says: it is asked for when that may have changed, once a second at most.
  #learnParts() {
    this.asksParts ??= setTimeout(async () => {
      this.asksParts = null;
      const { id } = this, session = await this.api.get(`/v1/sessions/${id}`).catch(() => null);
      if (id === this.id && session) this.state.learnParts(session.loops);
    }, PARTS_MS);
  }

  #showFrames(frames) {
    for (const frame of frames) this.view.setFrame(frame);
    this.evidence.framesKnown();
  }

  async #fillConversation(id, session) {
    this.lacksConversation = false;
    if (!session.language) return;
    try {
      const { exchanges } = await this.api.get(`/v1/sessions/${id}/conversation`);
      if (id !== this.id || !exchanges.length) return;
      this.state.addExchanges(exchanges);
      this.chat.showAll();
    } catch (error) {
      this.notify(`Earlier answers cannot be shown. ${error.message}`);
    }
  }

  // The first suggestion is asked by itself once there is something to ask about.
  #askFirst(isLive) {
    if (!this.asksFirst || !isLive || this.state.numFrames < FIRST_QUESTION_AFTER) return;
    this.asksFirst = false;
    const [first] = byId("suggestions").children;
    if (first && !this.state.answers.size) this.chat.ask(first.textContent);
  }

  #send(record) {
    if (this.connection?.send(record)) return true;
    this.notify("There is no connection to the server just now; it is tried again by itself. Then ask once more.");
    return false;
  }

  async #picture(frame, px) {
    return this.api.picture(`/v1/sessions/${this.id}/frames/${frame}.jpg?size=${px}`);
  }

  #lightUp(span) {
    this.view.highlight(span);
    this.timeline.highlight(span);
  }

  #flyToMoment(moment, frame) {
    const pose = frame?.pose ?? moment.pose;
    if (!pose) return this.notify(this.state.session?.model ? "Where the camera was then is not known." : NO_MAP);
    const intrinsics = frame?.intrinsics ?? this.state.tracks.last?.intrinsics ?? null;
    this.view.flyTo(pose, intrinsics, `As the camera saw it at ${clock(frame?.time ?? moment.end_s)}`);
    if (frame && intrinsics) this.#showBehind(frame.index, pose, intrinsics);
  }

  #flyToFrame(frame) {
    this.flownTo = frame.index;
    this.view.flyTo(frame.pose, frame.intrinsics, `As the camera saw it at ${clock(frame.time)}, frame ${frame.index}`);
    if (frame.intrinsics) this.#showBehind(frame.index, frame.pose, frame.intrinsics);
  }

  // The frame's own picture behind its points, where the server still has it.
  async #showBehind(frame, pose, intrinsics) {
    try {
      const reply = await this.api.request("GET", `/v1/sessions/${this.id}/frames/${frame}.jpg?size=640`);
      this.view.setBackdrop(await createImageBitmap(await reply.blob()), pose, intrinsics);
    } catch {
      this.view.setBackdrop(null);
    }
  }

  #setLink(link) {
    this.link = link;
    this.#refresh();
    if (link.name === "gone") this.notify("This session is no longer on the server.", [["Start a house", () => this.#openHouse().catch((error) => this.#fail(error))]]);
  }

  #fail(error) {
    this.#setLink({ name: "failed", words: "Nothing is running" });
    const saved = wantsRoom(error) ? [["Saved sessions", () => this.sources.open("saved")]] : [];
    this.notify(error.message, [["Try again", () => this.begin()], ...saved]);
  }

  #refresh() {
    const { sign, words } = statusOf(this.link, this.state, performance.now() - this.heardMs);
    byId("status").dataset.state = sign;
    if (byId("status-words").textContent !== words) byId("status-words").textContent = words;
    this.camera.update(this.state, this.view.numPoints);
    const session = this.state.session;
    const isLive = this.link.name === "open" && session && session.state !== "closed" && !this.state.isBarren;
    const isOver = session?.finished === true;
    byId("pause").lastElementChild.textContent = session?.paused ? "Go on" : "Pause";
    byId("pause").querySelector("use").setAttribute("href", session?.paused ? "#i-play" : "#i-pause");
    for (const name of ["pause", "stop"]) Object.assign(byId(name), { disabled: !isLive || isOver, hidden: isOver });
    if (!isLive || isOver) this.#askStop(false);
    byId("fork").disabled = !isLive || session.read_only === true;
    document.body.classList.toggle("read-only", session?.read_only === true);
    document.body.classList.toggle("maps-nothing", session?.model === null && !session.read_only);
    byId("no-map").hidden = !document.body.classList.contains("maps-nothing") || !byId("notice").hidden;
    if (session?.read_only) this.#showStill();
  }

  // Of a take that is looked at: the frame that was flown to, or the last one.
  async #showStill() {
    const index = this.flownTo ?? this.state.tracks.last?.index;
    if (index === undefined || index === this.stillOf) return;
    this.stillOf = index;
    const address = await this.#picture(index, PREVIEW_PX).catch(() => null);
    if (index === this.stillOf) this.camera.showStill(address);
  }

  #wireButtons() {
    byId("pause").addEventListener("click", () => this.#pause());
    byId("stop").addEventListener("click", () => this.#askStop(true));
    byId("stop-keep").addEventListener("click", () => this.#askStop(false));
    byId("stop-now").addEventListener("click", () => this.#stop());
    byId("fork").addEventListener("click", () => this.#fork());
    byId("keys-button").addEventListener("click", () => byId("keys").showModal());
    document.addEventListener("keydown", (event) => this.#press(event));
    document.addEventListener("click", ({ target }) => {
      for (const menu of document.querySelectorAll(".menu[open]")) if (!menu.contains(target)) menu.open = false;
    });
  }

  #pause() {
    if (this.state.session) this.#send({ type: "session.update", paused: !this.state.session.paused });
  }

  // Nothing takes it back, so that it is asked once more.
  #askStop(isAsked) {
    const place = byId("stop-sure"), hadFocus = place.contains(document.activeElement);
    if (place.hidden === !isAsked) return;
    place.hidden = !isAsked;
    byId("session-buttons").hidden = isAsked;
    if (isAsked) byId("stop-keep").focus();
    else if (hadFocus) byId(byId("stop").hidden ? "fork" : "stop").focus();
  }

  // Frames end here; what was seen stays, on the server and on this page.
  async #stop() {
    this.#askStop(false);
    this.feed?.stop();
    try {
      if (!this.state.session.paused) await this.api.post(`/v1/sessions/${this.id}/pause`);
      await this.api.request("POST", `/v1/sessions/${this.id}/finish`);
    } catch (error) {
      this.notify(error.message);
    }
  }

  async #fork() {
    try {
      const { id } = await this.api.post(`/v1/sessions/${this.id}/fork`);
      this.watch(id);
    } catch (error) {
      this.notify(error.message);
    }
  }

  #press(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || document.querySelector("dialog[open]")) return;
    if (event.key === "Escape") return this.#escape();
    const isPressing = event.key === " " && event.target.closest("button, summary");
    if (isPressing || event.target.closest("input, select, textarea")) return;
    if (event.key === "/") byId("question").focus();
    else if (event.key === "?") byId("keys").showModal();
    else if (event.key === " ") byId("pause").click();
    else if (!this.view.press(event.key.toLowerCase())) return;
    event.preventDefault();
  }

  #escape() {
    for (const menu of document.querySelectorAll(".menu[open]")) {
      menu.open = false;
      menu.querySelector("summary").focus();
    }
    this.#askStop(false);
    this.view.measure(false);
    this.#lightUp(null);
    this.notify("");
  }
}

// Whether a part of the map may have begun, or was joined to another.
function mayChangeParts({ type, tracking }) {
  return type === "session.finished" || type === "window.moved" || tracking?.sub_map > 0;
}

// Said of what was asked before: nothing to do about it now.
const isStale = (event) => event.code === "bad_message";

const page = new Page();
setUpTheme(() => page.timeline.recolour());
// For tests and the curious: where the view is, what it holds.
window.longtake = {
  page,
  get viewer() { return page.view.viewer; },
  get pose() { return page.view.viewer?.camera.pose; },
  get counts() { return page.view.viewer?.counts; },
  project: (point) => page.view.viewer.project(point),
};
page.begin();
