// Requests to the coordinator: JSON both ways. A refusal becomes an error with its code and text.
import { signal } from "./lib.js";
import { root } from "./root.js";

export const needsLogin = signal(false);

export class ApiProblem extends Error {
  constructor(status, facts) {
    super(facts.detail || facts.error || facts.title || `status ${status}`);
    this.status = status;
    this.code = facts.code || "unknown";
    this.detail = this.message;
    this.facts = facts;
  }
}

async function problemOf(answer) {
  let facts = {};
  try { facts = await answer.json(); } catch { /* not ours, such as a proxy's page */ }
  if (answer.status === 401) needsLogin.value = true;
  return new ApiProblem(answer.status, facts);
}

async function ask(method, path, body, { signal: aborting } = {}) {
  const options = { method, headers: { accept: "application/json" }, credentials: "same-origin", signal: aborting };
  if (body !== undefined) {
    options.body = JSON.stringify(body);
    options.headers["content-type"] = "application/json";
  }
  let answer;
  try {
    answer = await fetch(root + path, options);
  } catch (error) {
    if (error.name === "AbortError") throw error;
    throw new ApiProblem(0, { code: "unreachable", detail: "the coordinator does not answer" });
  }
  if (!answer.ok && !(path === "/health" && answer.status === 503)) throw await problemOf(answer);
  try {
    return await answer.text();
  } catch {
    throw new ApiProblem(0, { code: "unreachable", detail: "the coordinator has broken off its answer" });
  }
}

export const getText = (path, options) => ask("GET", path, undefined, options);
export const get = async (path, options) => parse(await getText(path, options));
export const post = async (path, body = {}) => parse(await ask("POST", path, body));
export const put = async (path, body = {}) => parse(await ask("PUT", path, body));
export const patch = async (path, body) => parse(await ask("PATCH", path, body));
export const del = async (path) => parse(await ask("DELETE", path));

export const parse = (text) => (text ? JSON.parse(text) : null);

export function withQuery(path, query) {
  const parts = new URLSearchParams();
  for (const [name, value] of Object.entries(query)) {
    for (const one of Array.isArray(value) ? value : [value]) {
      if (one !== undefined && one !== null && one !== "") parts.append(name, one);
    }
  }
  const text = parts.toString();
  return text ? `${path}?${text}` : path;
}
