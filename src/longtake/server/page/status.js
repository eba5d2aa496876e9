// What is happening, in words.

import { counted } from "./dom.js";

const QUIET_MS = 6000;

// What sessions are called that this page sends a camera's pictures to.
export const CAMERAS = { webcam: "Webcam", phone: "Phone" };

// `link` is what the connection says, `state` the session's, `silentMs` how long no frame has come.
export function statusOf(link, state, silentMs) {
  switch (link.name) {
    case "loading": return { sign: "waiting", words: "Loading" };
    case "opening": return { sign: "waiting", words: "Opening a session" };
    case "connecting": return { sign: "waiting", words: state.session ? "Connecting again" : "Connecting" };
    case "reconnecting":
      return { sign: "bad", words: `Lost the server, trying again in ${Math.ceil(link.seconds)} s` };
    case "gone": return { sign: "bad", words: "This session is no longer on the server" };
    case "closed": return { sign: "ended", words: "This session was closed" };
    case "failed": return { sign: "bad", words: link.words };
    default: return statusOfSession(state, silentMs);
  }
}

function statusOfSession(state, silentMs) {
  const { session, numFrames } = state, frames = counted(numFrames, "frame");
  const withParts = (words) => [words, state.partsInWords].filter(Boolean).join("; ");
  if (!session) return { sign: "waiting", words: "Connecting" };
  if (session.state === "closed") return { sign: "ended", words: "This session was closed" };
  if (session.read_only) return { sign: "ended", words: `A finished take, ${frames}` };
  if (session.finished) return { sign: "ended", words: withParts(`Ended after ${frames}`) };
  if (session.problem) return { sign: "bad", words: state.isBarren ? "Nothing can be read" : `Stopped after ${frames}` };
  if (session.paused) return { sign: "paused", words: withParts(`Paused after ${frames}`) };
  if (!numFrames) return { sign: "waiting", words: waitingWords(session.source) };
  if (session.state === "saved") return { sign: "ended", words: `${withParts(`Asleep on disk after ${frames}`)}; a question wakes it` };
  if (silentMs > QUIET_MS) {
    return { sign: "waiting", words: `${waitingWords(session.source)}, none for ${Math.round(silentMs / 1000)} s` };
  }
  const tracking = state.tracking.words(state.timeS);
  if (state.tracking.isLost) return { sign: "waiting", words: tracking };
  return { sign: "live", words: withParts(tracking ? `Live, ${frames}; ${tracking}` : `Live, ${frames}`) };
}

function waitingWords(source) {
  if (source === "push") return "Waiting for the camera";
  if (source === "upload") return "Waiting for the video";
  return "Waiting for frames";
}

// What a session is called: what somebody called it, or where its frames come from.
export function nameOf({ title, source }) {
  const world = /^world(?::([\w-]+))?(?:\?|$)/.exec(source);
  if (title) return title;
  if (world) return `House ${world[1] ?? ""}`.trim();
  return { push: "Live camera", upload: "Uploaded video" }[source] ?? source;
}

// Which button of the top bar starts such a session; null for what a program sends.
export function buttonOf({ title, source }) {
  if (/^world\b/.test(source)) return "house";
  if (source === "upload") return "upload";
  return source === "push" ? Object.keys(CAMERAS).find((kind) => CAMERAS[kind] === title) ?? null : null;
}

// Of all sessions the newest that frames come into, or may at once; those that wait for a first one, or are paused, come last.
export function newestRunning(sessions) {
  const running = sessions.filter(({ finished, problem, state }) => !finished && !problem && ["waiting", "open"].includes(state));
  const isGoing = ({ state, paused }) => Number(state === "open" && !paused);
  return running.sort((one, other) => isGoing(other) - isGoing(one) || other.created_s - one.created_s)[0] ?? null;
}
