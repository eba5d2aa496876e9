// Which of several answers is the likeliest: all of them with their shares.

import { byId, element } from "./dom.js";

export class Choose {
  constructor(api, sessionId) {
    Object.assign(this, { api, sessionId, asked: 0 });
    byId("choose").addEventListener("close", () => this.#clear());
    byId("choose-button").addEventListener("click", () => this.#open());
    byId("choose-form").addEventListener("submit", (event) => {
      event.preventDefault();
      this.#ask(byId("choose-question").value.trim(), byId("choose-choices").value.split(",").map((one) => one.trim()).filter(Boolean));
    });
  }

  #open() {
    byId("choose-question").value = byId("question").value || byId("suggestions").firstChild?.textContent || "";
    byId("choose").showModal();
  }

  // What was asked before is nothing to who opens it again, also where its answer is still to come.
  #clear() {
    this.asked += 1;
    byId("choose-choices").value = "";
    byId("choose-words").textContent = "";
    byId("choose-results").replaceChildren();
  }

  async #ask(question, choices) {
    const words = byId("choose-words");
    if (!question || choices.length < 2) {
      words.textContent = "Write a question, and two answers or more with commas between them.";
      return;
    }
    words.textContent = "Asking …";
    byId("choose-results").replaceChildren();
    const asked = ++this.asked;
    try {
      const { choices: scored } = await this.api.post(`/v1/sessions/${this.sessionId()}/choose`, { question, choices });
      if (asked !== this.asked) return;
      words.textContent = "";
      byId("choose-results").replaceChildren(...shares(scored).map(([choice, share]) => row(choice, share)));
    } catch (error) {
      if (asked === this.asked) words.textContent = error.message;
    }
  }
}

// The likeliest first; a share is of the likelihood a token, so that long answers are not at a disadvantage.
function shares(scored) {
  const weights = scored.map(({ mean_log_likelihood: mean }) => Math.exp(mean));
  const total = weights.reduce((sum, weight) => sum + weight, 0) || 1;
  return scored.map((choice, at) => [choice, weights[at] / total]).sort(([, one], [, other]) => other - one);
}

function row({ text }, share) {
  const per = `${Math.round(share * 100)} %`;
  return element("li", {}, element("span", { text, dir: "auto" }),
    element("meter", { min: 0, max: 1, value: share, "aria-label": `${text}: ${per}` }), element("span", { class: "soft", text: per }));
}
