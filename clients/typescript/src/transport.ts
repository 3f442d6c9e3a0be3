/**
 * HTTP to one of several coordinators on one store.
 *
 * All coordinators are equal. A program starts with a random one and stays there until that one
 * cannot be reached, breaks a request off, or answers that it cannot serve; then everything goes to
 * the next one. A request is repeated a few times if no coordinator has received it, or if it is
 * safe when it arrives twice.
 */
import { errorOf, RotaError, Unavailable } from "./errors.js";
import { jittered, MAX_TIMER_MS, pause } from "./timing.js";

export const DEFAULT_URL = "http://127.0.0.1:7070";
/** How long an answer may take, on top of the wait that the request asks for. */
export const ANSWER_TIMEOUT_MS = 30_000;
export const MAX_ANSWER_BYTES = 1024 * 1024 * 1024;
export const MAX_ADDRESSES = 64;
const REPEAT_AFTER_MS = [50, 200, 800];
const MOST_RETRY_AFTER_MS = 5_000;
const STATUS_UNAVAILABLE = 503;
const NO_REPEATS: readonly number[] = [];

/** Errors of the connection that come before the request is sent. */
const NOT_SENT_CODES = new Set([
  "ECONNREFUSED",
  "EHOSTUNREACH",
  "ENETUNREACH",
  "ENOTFOUND",
  "EAI_AGAIN",
  "UND_ERR_CONNECT_TIMEOUT",
]);

/** Errors of the TLS handshake about the certificate, which come before the request is sent, too. */
const CERTIFICATE_CODE =
  /^(CERT_|UNABLE_TO_|SELF_SIGNED_CERT|DEPTH_ZERO_|ERR_TLS_CERT_|INVALID_CA$|HOSTNAME_MISMATCH$)/;
const UNKNOWN_AUTHORITY_CODE = /^(UNABLE_TO_|SELF_SIGNED_CERT|DEPTH_ZERO_)/;

export interface TransportOptions {
  /**
   * The address of the coordinator; several on one store with commas between them. Default:
   * `ROTA_URL`, or else the coordinator of this machine.
   */
  url?: string;
  /** The access token. Default: `ROTA_TOKEN`, or else none. */
  token?: string;
}

export interface TransportRequest {
  method: string;
  /** The path with its query, such as `/api/tasks?limit=10`. */
  path: string;
  body?: unknown;
  /** Sending it twice does no more than sending it once. */
  isRepeatable: boolean;
  /** How long the coordinator may hold the answer back. */
  waitMs?: number;
  timeoutMs?: number;
  signal?: AbortSignal | undefined;
  /** The caller repeats by itself. */
  isRepeatedByCaller?: boolean;
}

export class Transport {
  private readonly addresses: readonly string[];
  private readonly token: string | undefined;
  private current: number;

  constructor(options: TransportOptions = {}) {
    const url = options.url || process.env["ROTA_URL"] || DEFAULT_URL;
    this.addresses = readAddresses(url);
    this.token = options.token || process.env["ROTA_TOKEN"] || undefined;
    if (this.token !== undefined && !/^[\x21-\x7e]+$/.test(this.token)) {
      throw new RotaError("invalid", "a token consists of printable ASCII characters");
    }
    this.current = Math.floor(Math.random() * this.addresses.length);
  }

  /** The coordinator that is used now. */
  get address(): string {
    return this.addresses[this.current] as string;
  }

  get headers(): Record<string, string> {
    return this.token === undefined ? {} : { authorization: `Bearer ${this.token}` };
  }

  /** Use another coordinator next, unless this one has been left already. */
  leave(address: string): void {
    if (this.address === address) {
      this.current = (this.current + 1) % this.addresses.length;
    }
  }

  /** Send a request and read its answer; a refusal is thrown as its error. */
  async send(request: TransportRequest): Promise<unknown> {
    const repeats = request.isRepeatedByCaller ? NO_REPEATS : REPEAT_AFTER_MS;
    for (const waitMs of repeats) {
      try {
        return await this.tryEach(request);
      } catch (error) {
        if (!(error instanceof Unavailable) || (error.isSent && !request.isRepeatable)) {
          throw error;
        }
        const leastMs = this.addresses.length > 1 ? 0 : error.retryAfterMs;
        await pause(
          Math.max(jittered(waitMs), Math.min(leastMs, MOST_RETRY_AFTER_MS)),
          request.signal,
        );
      }
    }
    return this.tryEach(request);
  }

  /** Try the coordinators in turn, until one has received the request. */
  private async tryEach(request: TransportRequest): Promise<unknown> {
    for (let triesLeft = this.addresses.length - 1; ; triesLeft -= 1) {
      const address = this.address;
      try {
        return await this.sendTo(address, request);
      } catch (error) {
        const isAway = error instanceof Unavailable;
        if (isAway || (error instanceof RotaError && error.status === STATUS_UNAVAILABLE)) {
          this.leave(address);
        }
        if (!isAway || error.isSent || triesLeft <= 0) {
          throw error;
        }
      }
    }
  }

  private async sendTo(address: string, request: TransportRequest): Promise<unknown> {
    request.signal?.throwIfAborted();
    const body = request.body === undefined ? null : writeBody(request.body);
    const timeoutMs = Math.min(
      request.timeoutMs ?? ANSWER_TIMEOUT_MS + (request.waitMs ?? 0),
      MAX_TIMER_MS,
    );
    const controller = new AbortController();
    const abort = (): void => controller.abort(request.signal?.reason);
    const timer = setTimeout(
      () => controller.abort(new Unavailable(`${address} did not answer within ${timeoutMs} ms`)),
      timeoutMs,
    );
    request.signal?.addEventListener("abort", abort, { once: true });
    try {
      const response = await fetch(address + request.path, {
        method: request.method,
        headers: {
          accept: "application/json",
          ...(body === null ? {} : { "content-type": "application/json" }),
          ...this.headers,
        },
        body,
        signal: controller.signal,
        redirect: "manual",
      });
      return await readAnswer(address, request, response);
    } catch (error) {
      if (controller.signal.aborted) {
        throw controller.signal.reason;
      }
      throw error instanceof RotaError ? error : connectionError(address, error);
    } finally {
      clearTimeout(timer);
      request.signal?.removeEventListener("abort", abort);
    }
  }
}

function writeBody(body: unknown): string {
  try {
    return JSON.stringify(body);
  } catch (error) {
    const reason = error instanceof Error ? error.message : String(error);
    throw new RotaError("invalid", `the request cannot be written as JSON: ${reason}`, { cause: error });
  }
}

async function readAnswer(
  address: string,
  request: TransportRequest,
  response: Response,
): Promise<unknown> {
  const text = await readText(address, response);
  if (!response.ok) {
    throw errorOf(address, response.status, text, response.headers.get("retry-after"));
  }
  const mediaType = response.headers.get("content-type") ?? "";
  if (!mediaType.startsWith("application/json")) {
    return text;
  }
  try {
    return JSON.parse(text) as unknown;
  } catch (error) {
    const where = `the answer of ${address} to ${request.method} ${request.path}`;
    throw new Unavailable(`${where} cannot be read: ${String(error)}`, { code: "invalid_answer" });
  }
}

async function readText(address: string, response: Response): Promise<string> {
  if (response.body === null) {
    return "";
  }
  const pieces: Uint8Array[] = [];
  let size = 0;
  for await (const piece of response.body as unknown as AsyncIterable<Uint8Array>) {
    size += piece.byteLength;
    if (size > MAX_ANSWER_BYTES) {
      throw new RotaError(
        "invalid_answer",
        `the answer of ${address} has more than ${MAX_ANSWER_BYTES} bytes`,
      );
    }
    pieces.push(piece);
  }
  return Buffer.concat(pieces).toString("utf8");
}

function connectionError(address: string, error: unknown): Unavailable {
  const cause = error instanceof Error ? (error.cause ?? error) : error;
  const reason = reasonOf(cause);
  const code = codeOf(cause);
  if (code !== undefined && CERTIFICATE_CODE.test(code)) {
    const advice = UNKNOWN_AUTHORITY_CODE.test(code)
      ? "; for an authority of your own, set NODE_EXTRA_CA_CERTS to the file with its certificate"
      : "";
    return new Unavailable(
      `the certificate of the coordinator at ${address} is not accepted: ${reason}${advice}`,
      { isSent: false, cause: error },
    );
  }
  if (code !== undefined && NOT_SENT_CODES.has(code)) {
    return new Unavailable(`the coordinator at ${address} cannot be reached: ${reason}`, {
      isSent: false,
      cause: error,
    });
  }
  return new Unavailable(
    `the connection to the coordinator at ${address} broke before its answer: ${reason}; ` +
      "whether the request was carried out is unknown",
    { cause: error },
  );
}

function codeOf(error: unknown): string | undefined {
  // With several addresses of one host, the error of each attempt is in a list.
  if (error instanceof AggregateError) {
    const codes = error.errors.map(codeOf);
    return codes.every((one) => one !== undefined && NOT_SENT_CODES.has(one)) ? codes[0] : undefined;
  }
  const code = (error as { code?: unknown } | null)?.code;
  return typeof code === "string" ? code : undefined;
}

function reasonOf(error: unknown): string {
  if (error instanceof AggregateError) {
    return error.errors.map(reasonOf).join("; ");
  }
  return error instanceof Error ? error.message || error.name : String(error);
}

/** The addresses of a list with commas; a text of a refused one never shows a password. */
export function readAddresses(urls: string): string[] {
  const addresses = urls
    .split(",")
    .map((one) => one.trim())
    .filter((one) => one !== "")
    .map(readAddress);
  if (addresses.length === 0 || addresses.length > MAX_ADDRESSES) {
    throw new RotaError("invalid", `give 1 to ${MAX_ADDRESSES} addresses of coordinators`);
  }
  if (new Set(addresses).size < addresses.length) {
    throw new RotaError("invalid", `an address is listed twice in ${addresses.join(", ")}`);
  }
  return addresses;
}

function readAddress(text: string): string {
  let url: URL;
  try {
    url = new URL(text);
  } catch {
    throw new RotaError("invalid", "not a coordinator's URL; one is like http://127.0.0.1:7070");
  }
  if (url.protocol !== "http:" && url.protocol !== "https:") {
    throw new RotaError("invalid", `a coordinator's URL starts with http:// or https://, not ${url.protocol}`);
  }
  if (url.username !== "" || url.password !== "") {
    throw new RotaError("invalid", "a coordinator's URL carries no login; give the token as ROTA_TOKEN");
  }
  if (url.search !== "" || url.hash !== "") {
    throw new RotaError("invalid", "a coordinator's URL ends with its path");
  }
  return url.origin + url.pathname.replace(/\/+$/, "");
}
