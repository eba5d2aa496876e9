// Questions that a model knows, a few at a time, and what its answers mean.

import { byId, element, icon } from "./dom.js";

const MOST_SHOWN = 4, APART = 3;

export class Suggestions {
  constructor(ask) {
    Object.assign(this, { ask, model: null, first: 0 });
  }

  // Of the session's model, or none; whether that is another than before.
  show(model) {
    const isAnother = model?.id !== this.model?.id;
    Object.assign(this, { model, first: isAnother ? 0 : this.first });
    const questions = varied(model?.questions ?? []), shown = questions.slice(this.first, this.first + MOST_SHOWN);
    byId("suggestions").replaceChildren(...shown.map((question) => element("button", {
      type: "button", text: question, onclick: () => this.ask(question),
    })), ...(questions.length > MOST_SHOWN ? [this.#others(questions.length)] : []));
    return isAnother;
  }

  // What to know of an answer to this question, or null: models list what they know as "rooms, by the colour of their walls".
  explain(question) {
    if (!question) return null;
    for (const name of Object.keys(this.model?.words ?? {})) {
      const [what, how] = name.split(", ");
      if (how && new RegExp(`\\b${what.replace(/s$/, "")}s?\\b`, "i").test(question)) return `${capital(what)} are told ${how}.`;
    }
    return null;
  }

  #others(count) {
    return element("button", { type: "button", class: "others", "aria-label": "Other suggestions", title: "Other suggestions", onclick: () => {
      this.first = this.first + MOST_SHOWN < count ? this.first + MOST_SHOWN : 0;
      this.show(this.model);
      byId("suggestions").querySelector(".others").focus();
    } }, icon("others"), "Others");
  }
}

// Neighbours in a model's list are alike: every third of them first, so that those shown together differ.
export function varied(questions) {
  return Array.from({ length: APART }, (_, rest) => questions.filter((_, at) => at % APART === rest)).flat();
}

const capital = (word) => word.charAt(0).toUpperCase() + word.slice(1);
