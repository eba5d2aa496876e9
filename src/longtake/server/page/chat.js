// Questions and answers, suggestions, and questions that stand.

import { byId, clock, element, icon, seconds } from "./dom.js";
import { Suggestions } from "./suggestions.js";

const EMPTY = "Answers come with the moments they looked at.";

export class Chat {
  // `send(record)` says whether it went out.
  constructor(state, evidence, send) {
    Object.assign(this, { state, evidence, send, items: new Map(), drafts: 0 });
    this.suggestions = new Suggestions((question) => this.ask(question));
    byId("ask-form").addEventListener("submit", (event) => {
      event.preventDefault();
      if (this.ask(byId("question").value)) byId("question").value = "";
    });
    byId("watch-button").addEventListener("click", () => this.#openWatch());
    byId("watch-form").addEventListener("submit", () => this.#watch());
    this.clear();
  }

  clear() {
    this.items.clear();
    byId("log").replaceChildren(element("li", { class: "empty", text: EMPTY }));
    byId("watches").replaceChildren();
  }

  // All of them anew, when earlier ones became known.
  showAll() {
    this.items.clear();
    byId("log").replaceChildren();
    for (const key of this.state.answers.keys()) this.update(key);
  }

  ask(text) {
    const question = text.trim();
    if (!question) return false;
    const response = `page-${Date.now().toString(36)}-${this.drafts++}`;
    return this.send({ type: "response.create", question, response });
  }

  // What the session's model knows to answer; a session that only maps says so.
  offer(session, models) {
    const language = session?.language ?? null;
    const known = models.find(({ id, kind }) => kind === "language" && id === language);
    byId("ask-model").textContent = session && !language ? "this session only maps" : language ?? "";
    const isAsked = !session || language, { isBarren } = this.state;
    byId("question").placeholder = !isAsked ? "Start one that answers to ask" : isBarren ? "Nothing was seen" : "Ask about what was seen";
    const empty = byId("log").querySelector(".empty");
    if (empty) empty.textContent = isAsked ? EMPTY : "This session only maps; to ask, start one whose settings say: map and answer.";
    this.#offerWebhook(session?.webhook_hosts ?? []);
    if (this.suggestions.show(known ?? null)) for (const key of this.items.keys()) this.update(key);
    for (const place of byId("ask-panel").querySelectorAll("input, button")) place.disabled = !language || isBarren;
    if (session?.finished) byId("watch-button").disabled = true; // a question that stands is asked while the video runs
  }

  // One answer, or all that changed with an event.
  update(key) {
    const answer = this.state.answers.get(key);
    if (!answer) return;
    byId("log").querySelector(".empty")?.remove();
    const log = byId("log"), isAtEnd = log.scrollHeight - log.scrollTop - log.clientHeight < 60;
    let item = this.items.get(key);
    if (!item) {
      item = element("li");
      this.items.set(key, item);
      log.append(item);
      if (this.items.size > this.state.answers.size) this.#dropOldest();
    }
    this.#fill(item, answer, key);
    if (isAtEnd) log.scrollTop = log.scrollHeight;
  }

  // Of a video that has ended nothing is waited for any more.
  showWatches(session) {
    const watches = session?.finished ? [] : session?.watches ?? [];
    byId("watches").replaceChildren(...watches.map((watch) => element("li", {}, icon("bell"),
      element("span", { text: `${watch.question} — until “${watch.expected}”`, dir: "auto" }),
      element("button", { type: "button", class: "plain", "aria-label": `Stop waiting: ${watch.question}`,
        onclick: () => this.send({ type: "watch.delete", watch: watch.id }) }, icon("close")))));
  }

  #fill(item, answer, key) {
    const parts = [];
    if (answer.isFired) {
      parts.push(element("p", { class: "fired" }, icon("bell"), element("span", { text: firedInWords(answer), dir: "auto" })));
    }
    if (answer.question) parts.push(element("p", { class: "asked", text: answer.question, dir: "auto" }));
    parts.push(this.#words(answer, key));
    const meaning = answer.isDone && answer.text && !answer.refusal ? this.suggestions.explain(answer.question) : null;
    if (meaning) parts.push(element("p", { class: "about meaning", text: meaning }));
    if (answer.isDone && answer.timing && !answer.refusal) {
      const { first_token_s: first, total_s: total } = answer.timing;
      const words = `seen until ${clock(answer.seen_until_s)} · first word ${seconds(first)} · whole ${seconds(total)}`;
      parts.push(element("p", { class: "about", text: words }));
    }
    if (answer.evidence?.length) parts.push(this.evidence.list(answer.evidence.slice(0, 3)));
    item.replaceChildren(...parts);
  }

  #words(answer, key) {
    if (answer.problem) return element("p", { class: "answer problem", text: answer.problem, dir: "auto" });
    if (answer.isCancelled) return element("p", { class: "answer waiting", text: "Given up." });
    if (answer.isDone) return element("p", { class: "answer", text: answer.text || "(no words)", dir: "auto" });
    if (answer.text) return element("p", { class: "answer", text: answer.text, dir: "auto" });
    return element("p", { class: "answer waiting", text: "Looking … " }, element("button", {
      type: "button", class: "plain", text: "Give up", onclick: () => this.send({ type: "response.cancel", response: key }),
    }));
  }

  #dropOldest() {
    for (const [key, item] of this.items) {
      if (this.state.answers.has(key)) continue;
      item.remove();
      this.items.delete(key);
    }
  }

  // Only where the operator allows hosts to be posted to.
  #offerWebhook(hosts) {
    byId("watch-webhook-field").hidden = !hosts.length;
    byId("watch-webhook").placeholder = hosts.length ? `an address at ${hosts.join(" or ")}` : "";
  }

  #openWatch() {
    byId("watch-question").value = byId("question").value;
    byId("watch").showModal();
  }

  #watch() {
    const webhook = byId("watch-webhook").value.trim();
    this.send({
      type: "watch.create", ...(webhook && { webhook }), question: byId("watch-question").value, expected: byId("watch-expected").value,
      every_s: Number(byId("watch-every").value), hold_s: Number(byId("watch-hold").value),
    });
  }
}

function firedInWords({ expected, time_s: time }) {
  return expected ? `It is “${expected}” since ${clock(time)}` : `It is so since ${clock(time)}`;
}
