// Requests to the server: with the token where one is needed, and errors as the sentence that the server says.

const TOKEN_KEY = "longtake-token";

export class ApiError extends Error {
  constructor(message, code, status) {
    super(message);
    Object.assign(this, { code, status });
  }
}

export class Api {
  // `askToken(sentence)` asks whoever looks at the page, and resolves to what was typed.
  constructor(askToken) {
    this.askToken = askToken;
    this.token = sessionStorage.getItem(TOKEN_KEY) ?? "";
  }

  setToken(token) {
    this.token = token;
    sessionStorage.setItem(TOKEN_KEY, token);
  }

  async get(path) {
    return (await this.request("GET", path)).json();
  }

  async post(path, body = undefined) {
    return (await this.request("POST", path, body)).json();
  }

  async request(method, path, body = undefined) {
    const headers = this.#headers();
    if (body !== undefined) headers["Content-Type"] = "application/json";
    const options = { method, headers, body: body === undefined ? undefined : JSON.stringify(body) };
    const reply = await this.#fetch(path, options);
    if (reply.status === 401) {
      const wasWrong = this.token !== "";
      this.setToken(await this.#askedToken(wasWrong));
      return this.request(method, path, body);
    }
    if (!reply.ok) throw await errorOf(reply);
    return reply;
  }

  // Something a link or a socket may ask for, which can set no headers: with a ticket for one request.
  async ticketed(path) {
    if (!this.token) return path;
    const { ticket } = await this.post("/v1/tickets");
    return `${path}${path.includes("?") ? "&" : "?"}ticket=${encodeURIComponent(ticket)}`;
  }

  async socket(path) {
    const url = new URL(await this.ticketed(path), location.href);
    url.protocol = url.protocol === "https:" ? "wss:" : "ws:";
    const socket = new WebSocket(url);
    socket.binaryType = "arraybuffer";
    return socket;
  }

  // Sends a file; `tell(share)` hears how much has gone. Fetch cannot say that.
  upload(path, file, tell) {
    return new Promise((done, fail) => {
      const request = new XMLHttpRequest();
      request.open("PUT", path);
      for (const [name, value] of Object.entries(this.#headers())) request.setRequestHeader(name, value);
      request.upload.onprogress = (event) => tell(event.loaded / Math.max(1, event.total));
      request.onerror = () => fail(new ApiError("The upload broke off: the server does not answer.", "offline", 0));
      request.onload = () => {
        const record = parsed(request.responseText);
        if (request.status < 400) done(record);
        else fail(new ApiError(record.error?.message ?? "The upload was refused.", record.error?.code, request.status));
      };
      request.send(file);
    });
  }

  // A picture for an `img`, whose requests carry no token.
  async picture(path) {
    if (!this.token) return path;
    return URL.createObjectURL(await (await this.request("GET", path)).blob());
  }

  #headers() {
    return this.token ? { Authorization: `Bearer ${this.token}` } : {};
  }

  async #fetch(path, options) {
    try {
      return await fetch(path, options);
    } catch {
      throw new ApiError("The server does not answer; is it still running?", "offline", 0);
    }
  }

  // One question at a time, however many requests wait for it.
  #askedToken(wasWrong) {
    const sentence = `${wasWrong ? "This token is not the server's; it wants" : "This server needs a token:"} the one it was started with `
      + "(LONGTAKE_TOKEN), or that it printed at its start.";
    this.asking ??= this.askToken(sentence).finally(() => { this.asking = null; });
    return this.asking;
  }
}

async function errorOf(reply) {
  const { error } = parsed(await reply.text());
  return new ApiError(error?.message ?? `The server said ${reply.status}.`, error?.code, reply.status);
}

function parsed(text) {
  try {
    return JSON.parse(text) ?? {};
  } catch {
    return {};
  }
}
