// The same question answered by streaming, by encoding everything anew, and by the last frame alone.

import { byId, bytes, element, many, seconds } from "./dom.js";

const WAYS = [
  ["streaming", "Streaming", "from the memory as it is"],
  ["anew", "All anew", "every frame read again"],
  ["last_frame", "Last frame", "one picture alone"],
];

export class Compare {
  constructor(api, sessionId) {
    Object.assign(this, { api, sessionId, asked: 0 });
    byId("compare").addEventListener("close", () => this.#clear());
    byId("compare-button").addEventListener("click", () => this.#open());
    byId("compare-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask(byId("compare-question").value.trim());
    });
  }

  #open() {
    byId("compare-question").value = byId("question").value || byId("suggestions").firstChild?.textContent || "";
    byId("compare-words").textContent = "Answered three ways, one after the other; the video goes on meanwhile.";
    byId("compare").showModal();
  }

  // What was asked before is nothing to who opens it again, also where its answers are still to come.
  #clear() {
    this.asked += 1;
    byId("compare-form").querySelector("button").disabled = false;
    byId("compare-results").replaceChildren();
  }

  async #ask(question) {
    if (!question) return;
    const button = byId("compare-form").querySelector("button"), asked = ++this.asked;
    button.disabled = true;
    byId("compare-words").textContent = "Asking …";
    byId("compare-results").replaceChildren();
    try {
      const reply = await this.api.post(`/v1/sessions/${this.sessionId()}/compare`, { question });
      if (asked !== this.asked) return;
      byId("compare-results").replaceChildren(...WAYS.map((way) => card(way, reply[way[0]])));
      byId("compare-words").textContent = "";
    } catch (error) {
      if (asked === this.asked) byId("compare-words").textContent = error.message;
    } finally {
      if (asked === this.asked) button.disabled = false;
    }
  }
}

function card([, name, about], answer) {
  const rows = answer ? [
    ["First word", seconds(answer.first_token_s)], ["Whole answer", seconds(answer.total_s)],
    ["Memory", bytes(answer.memory_bytes)], ["Frames read", Number.isFinite(answer.frames) ? many(answer.frames) : "–"],
  ] : [];
  return element("section", { class: "way" },
    element("div", {}, element("h2", { text: name }), element("p", { class: "soft", text: about })),
    element("p", { class: "answer", text: answer?.text ?? "No answer came.", dir: "auto" }),
    element("dl", {}, ...rows.flatMap(([term, value]) => [element("dt", { text: term }), element("dd", { text: value })])));
}
