/* Requests under /v1, with the reader's key if there is one.
 *
 * The key is kept for this tab only (sessionStorage), and sent as `Authorization: Bearer`. A refusal for want of one is
 * announced to the page by the event "key-wanted" of the document.
 */

const PATIENCE = 10; // seconds given to one request
const STORAGE_KEY = "rarestream-key";
let unstored = null; // the key, where the browser keeps nothing for us

/** Nothing answered, or not in time. */
export class Away extends Error {
  message = "offline";
}

/** The server answered with an error: `status`, `code`, `detail`, `errors` ({pointer, detail}), `wait` in seconds. */
export class Refused extends Error {
  constructor(status, problem, wait) {
    super(problem.detail ?? `the server answers ${status}${problem.title ? ` (${problem.title})` : ""}`);
    this.status = status;
    this.code = problem.code;
    this.errors = problem.errors ?? [];
    this.wait = wait;
  }
}

export function theKey() {
  try {
    return sessionStorage.getItem(STORAGE_KEY);
  } catch {
    return unstored; // cookies and storage are blocked
  }
}

export function keepKey(key) {
  unstored = key;
  try {
    if (key === null) sessionStorage.removeItem(STORAGE_KEY);
    else sessionStorage.setItem(STORAGE_KEY, key);
  } catch {
    // kept until the page is left
  }
}

/** Send a request below v1/, with a `body` to be made JSON, with `json` that is, or with a `file`; its raw response once the head is there.
 *
 * Throws Away or Refused.
 */
export async function send(method, path, { body, json, file, signal, headers = {}, interactive = false, keepalive = false } = {}) {
  const key = theKey();
  const all = { ...headers };
  if (key !== null) all.authorization = `Bearer ${key}`;
  const text = body === undefined ? json : JSON.stringify(body);
  if (text !== undefined) all["content-type"] = "application/json";
  if (file !== undefined) all["content-type"] = "application/octet-stream";
  let reply;
  try {
    reply = await fetch(`v1/${path}`, {
      method,
      headers: all,
      signal,
      cache: "no-store",
      keepalive,
      body: text ?? file,
    });
  } catch (error) {
    if (signal?.aborted && signal.reason?.name !== "TimeoutError") throw error;
    throw new Away();
  }
  if (reply.ok) return reply;
  const refused = new Refused(reply.status, await problemOf(reply), Number(reply.headers.get("Retry-After")) || 0);
  if (reply.status === 401 || reply.status === 403) {
    document.dispatchEvent(new CustomEvent("key-wanted", { detail: { refused, key, interactive } }));
  }
  throw refused;
}

/** The problem document of a refusal; a proxy's error page is none. */
async function problemOf(reply) {
  try {
    return await reply.json();
  } catch {
    return {};
  }
}

/** Send a request and read its JSON; null where there is no body. `interactive`: the user caused the request, so ask for a key if one is needed. */
export async function ask(method, path, { signal, interactive = method !== "GET", patience = PATIENCE, ...request } = {}) {
  const limit = AbortSignal.timeout(patience * 1000);
  const reply = await send(method, path, { ...request, interactive, signal: signal ? AbortSignal.any([signal, limit]) : limit });
  try {
    return reply.status === 204 ? null : await reply.json();
  } catch (error) {
    if (signal?.aborted) throw error;
    throw limit.aborted || error.name !== "SyntaxError" ? new Away() : error;
  }
}

export const get = (path, options) => ask("GET", path, options);

/** The path of a learner, or of something of it. */
export const learnerPath = (name, rest = "") => `learners/${encodeURIComponent(name)}${rest}`;
export const groupPath = (name, rest = "") => `groups/${encodeURIComponent(name)}${rest}`;

/** What is sent for no name: it is refused, and with it whatever else is wrong. */
export const NAMELESS = " ";

/** The problems that the server found in what has no name, with `detail` in place of that name's. */
export const named = (problems, detail) => [
  { pointer: "/name", detail },
  ...problems.filter(({ pointer }) => pointer !== "/name"),
];

/** What an error says to the reader; whatever is none of ours is a fault of this page, and goes to the console. */
export function reasonOf(error) {
  if (error instanceof Away) return "the server does not answer";
  if (error instanceof Refused) return error.message;
  console.error(error);
  return error instanceof SyntaxError ? "an answer could not be read" : "this page failed; reload it";
}

/** The same with each problem that the server found, by the label of its field. `labels`: JSON pointer -> label; what a
 * field is called that has none here follows from its pointer. */
export function reasonsOf(error, labels = {}) {
  const problems = error instanceof Refused ? error.errors : [];
  return [reasonOf(error), ...problems.map((problem) => labelled(problem, labels))].join("; ");
}

/** One problem in words: `“alerts” is -1; expected more than 0`. */
export function labelled({ pointer, detail }, labels = {}) {
  const keys = pointer.split("/").slice(1);
  for (let n = keys.length; n > 0; n -= 1) {
    const label = labels[`/${keys.slice(0, n).join("/")}`];
    if (label !== undefined) return [`“${label}”`, ...keys.slice(n).map(keyWords), detail].join(" ");
  }
  return keys.length === 0 ? detail : `“${keys.map(keyWords).join(", ")}” ${detail}`;
}

/** A name as a pointer has it. */
export const pointed = (name) => name.replaceAll("~", "~0").replaceAll("/", "~1");

/** A key of a pointer as people say it: places in lists are counted from 1. */
export const keyWords = (key) =>
  /^\d+$/.test(key) ? `no. ${Number(key) + 1}` : key.replaceAll("~1", "/").replaceAll("~0", "~");
