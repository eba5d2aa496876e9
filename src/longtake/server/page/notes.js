// What to know before a session is trusted: a sentence that all see, the rest of it folded.

import { byId, element } from "./dom.js";

const ADVICE = /;? ?for real video .*?(longtake serve (--\S+ \S+?))?\.?$/;
const FOLDED = "Why, and what to do";

export class Notes {
  constructor() {
    this.shown = null; // whoever has opened the fold finds it open while nothing new is said
  }

  show(session) {
    const digest = digestOf(session ?? {}), key = JSON.stringify(digest);
    if (key === this.shown) return;
    this.shown = key;
    byId("model-notes").classList.toggle("unlike", digest.isUnlike);
    byId("model-notes").replaceChildren(...(digest.said ? [element("p", { text: digest.said })] : []), ...folded(digest));
  }
}

// `said` in one sentence, `reasons` of it, and the `command` that starts a server for such video; each at most once.
export function digestOf({ notes = [], unlikeness, model, language }) {
  const far = [["map", model, unlikeness?.model], ["answers", language, unlikeness?.language]].filter(([, , how]) => how > 1);
  const isUnlike = far.length > 0;
  const options = [...new Set(notes.map((note) => ADVICE.exec(note)?.[2]).filter(Boolean))];
  const command = options.length ? `longtake serve ${options.join(" ")}` : null;
  // What was measured says more than what was trained on.
  const measured = notes.filter((note) => !isUnlike || !/ was trained on /.test(note));
  const reasons = [...new Set(measured.map((note) => note.replace(ADVICE, ".").replace(/\.\.$/, ".")))];
  if (isUnlike) return { isUnlike, said: unlikeInWords(far), reasons, command };
  return { isUnlike, said: reasons[0] ?? "", reasons: reasons.slice(1), command };
}

function unlikeInWords(far) {
  const whose = far.map(([, name]) => name ?? "the model").join(" and "), what = far.map(([kind]) => kind).join(" and ");
  return `This video is unlike what ${whose} ${far.length > 1 ? "know" : "knows"}: its ${what} may mean nothing.`;
}

function folded({ reasons, command }) {
  if (!reasons.length && !command) return [];
  return [element("details", {}, element("summary", { text: FOLDED }),
    ...reasons.map((reason) => element("p", { text: reason })),
    ...(command ? [element("p", { text: "For real video start the server with published models:" }), element("code", { text: command })] : []))];
}
