/** Requests to the server. Problems become exceptions; a busy or unreachable server is tried again; a missing token is requested. */

const LONGEST_WAIT = 30;
const TOKEN = "retriever-token";

/** Whether a header can contain this token. With other characters, fetch would fail without a reason. */
export const isToken = (text) => /^[\x21-\x7e]+$/.test(text);

/** Dispatches `gone` and `busy` (detail: seconds until the next try, reason), `back`, and `token` (detail: whether one was wrong). */
export const server = new EventTarget();

/** A problem reported by the server. */
export class Problem extends Error {
  constructor(status, body) {
    super(body.detail || body.title || `The server answered with status ${status}.`);
    this.status = status;
    this.title = body.title || "";
    this.errors = Array.isArray(body.errors) ? body.errors : [];
  }
}

export const isAbort = (error) => error?.name === "AbortError";

/** Send GET, or POST if there is a body; return the JSON of the response. */
export async function ask(path, { body, query, signal } = {}) {
  return (await fetched(path, { body, query, signal })).json();
}

/** Read a document. Browsers resolve an id of one or two dots as a folder, however it is encoded, and request another address. */
export async function storedDocument(id, collection, signal, start) {
  if (isFolder(id)) throw new Problem(0, { detail: `A browser cannot request the document with the id ${id}, because in an address it means a folder. “retriever export” writes it to a file.` });
  return ask(`v1/documents/${encodeURIComponent(id)}`, { query: { collection, start }, signal });
}

export const isFolder = (id) => id === "." || id === "..";

/** Send a request until it succeeds; return the response. */
export async function fetched(path, { body, query, signal } = {}) {
  const given = Object.entries(query ?? {}).filter(([, value]) => value !== "" && value !== undefined);
  const address = given.length ? `${path}?${new URLSearchParams(given)}` : path;
  for (;;) {
    const token = kept();
    const headers = { Accept: "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
    const request = { headers, signal, cache: "no-cache" };
    if (body !== undefined) {
      Object.assign(request, { method: "POST", body: JSON.stringify(body) });
      headers["Content-Type"] = "application/json";
    }
    let answer;
    try {
      answer = await fetch(address, request);
    } catch (error) {
      if (isAbort(error)) throw error;
      await orAborted(back(), signal);
      continue;
    }
    if (answer.ok) return answer;
    const problem = new Problem(answer.status, await answer.json().catch(() => ({})));
    if (answer.status === 401) await orAborted(newToken(token), signal);
    else if (answer.status === 429 || answer.status === 503) await whileBusy(answer, problem, signal);
    else throw problem;
  }
}

/** Settle with the promise, or with an AbortError if the request is aborted. */
function orAborted(promise, signal) {
  signal?.throwIfAborted();
  return new Promise((resolve, reject) => {
    signal?.addEventListener("abort", () => reject(signal.reason), { once: true });
    promise.then(resolve, reject);
  });
}

const tell = (type, detail) => server.dispatchEvent(new CustomEvent(type, { detail }));

const sleepers = new Set();

/** Try again without waiting. */
export const tryNow = () => sleepers.forEach((wake) => wake());
addEventListener("online", tryNow);

function sleep(seconds) {
  return new Promise((resolve) => {
    const wake = () => {
      clearTimeout(timer);
      sleepers.delete(wake);
      resolve();
    };
    const timer = setTimeout(wake, seconds * 1000);
    sleepers.add(wake);
  });
}

let reconnecting = null;

/** Poll the server's health, at increasing intervals, until it answers. All waiting requests share this loop. */
function back() {
  reconnecting ??= (async () => {
    for (let seconds = 1; ; seconds = Math.min(2 * seconds, LONGEST_WAIT)) {
      tell("gone", { seconds });
      await sleep(seconds);
      if (await fetch("health", { cache: "no-store" }).then((answer) => answer.ok, () => false)) break;
    }
    reconnecting = null;
    tell("back");
  })();
  return reconnecting;
}

let waiting = 0;

async function whileBusy(answer, problem, signal) {
  const asked = Number(answer.headers.get("Retry-After"));
  const seconds = Math.min(Math.max(Number.isFinite(asked) ? asked : 1, 1), LONGEST_WAIT);
  waiting++;
  tell("busy", { seconds, why: problem.message });
  try {
    await orAborted(sleep(seconds), signal);
  } finally {
    if (--waiting === 0 && !reconnecting) tell("back");
  }
}

/** The token entered in this tab, or null. */
function kept() {
  const token = sessionStorage.getItem(TOKEN);
  return token && isToken(token) ? token : null;
}

let given = null;

/** Request a new token, once for all waiting requests. */
function newToken(wrong) {
  if (kept() !== wrong) return Promise.resolve();
  given ??= new Promise((resolve) => {
    server.addEventListener("token-given", resolve, { once: true });
    tell("token", { wrong: wrong !== null });
  }).then(() => (given = null));
  return given;
}

export function giveToken(token) {
  sessionStorage.setItem(TOKEN, token);
  tell("token-given");
}
