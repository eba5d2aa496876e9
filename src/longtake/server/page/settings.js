// What a session is to be, before it starts: the server's own schema says which settings there are.

import { byId, element } from "./dom.js";

const TASKS = [["both", "map and answer"], ["map", "map only"], ["ask", "answer only"]];
const OWN = ["source", "model", "language", "delivery", "title"];
const WORDS = {
  memory: "Memory, such as 64MB", share: "The map's part of it", ask_fps: "Frames a second for questions",
  fps: "Frames a second", max_tokens: "Longest answer, in tokens", policy: "What is kept (policy)",
  chunk: "Frames a chunk", chunk_frames: "Frames a chunk",
};

export class Settings {
  constructor(api) {
    Object.assign(this, { api, models: [], fields: new Map() });
  }

  async load() {
    this.models = (await this.api.get("/v1/models")).data;
    const schema = this.models.length ? await this.api.get("/v1/openapi.json").catch(() => ({})) : {};
    const properties = schema.components?.schemas?.SessionRequest?.properties ?? {};
    this.#fill(Object.entries(properties).filter(([name, { type }]) => !OWN.includes(name) && type !== "boolean"));
  }

  // The body of `POST /v1/sessions`, but for its source; what was left as it is is left out.
  get request() {
    const request = {}, task = this.fields.get("task")?.value ?? "both";
    const model = this.fields.get("model")?.value, language = this.fields.get("language")?.value;
    if (task === "ask") request.model = null;
    else if (model) request.model = model;
    if (task === "map") request.language = null;
    else if (language) request.language = language;
    for (const [name, field] of this.fields) {
      if (["task", "model", "language"].includes(name) || field.value === "") continue;
      request[name] = field.type === "number" ? Number(field.value) : field.value;
    }
    return request;
  }

  get framesPerS() {
    return Number(this.fields.get("fps")?.value) || 10;
  }

  #fill(properties) {
    const place = byId("settings-fields");
    this.fields.clear();
    place.replaceChildren();
    this.#add(place, "task", "What it does", select(TASKS));
    for (const [name, kind, words] of [["model", "map", "Model of the map"], ["language", "language", "Model of answers"]]) {
      const names = this.models.filter((model) => model.kind === kind).map(({ id }) => [id, id]);
      this.#add(place, name, words, select(names));
    }
    for (const [name, schema] of properties) this.#add(place, name, WORDS[name] ?? schema.title ?? name, inputFor(schema));
  }

  #add(place, name, words, field) {
    field.dataset.setting = name;
    this.fields.set(name, field);
    place.append(element("label", { text: words }, field));
  }
}

function select(options) {
  return element("select", {}, ...options.map(([value, text]) => element("option", { value, text })));
}

function inputFor(schema) {
  const parts = schema.anyOf ?? [schema], choices = parts.find((part) => part.enum)?.enum;
  const usual = schema.default ?? "";
  if (choices) return select([["", `as usual${usual ? ` (${usual})` : ""}`], ...choices.map((choice) => [choice, choice])]);
  const isNumber = parts.every(({ type }) => ["number", "integer", "null"].includes(type));
  return element("input", { type: isNumber ? "number" : "text", step: "any", placeholder: String(usual || "as usual") });
}
