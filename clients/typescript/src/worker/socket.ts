/** The WebSocket of a stream, under the subprotocol that packs envelopes with MessagePack. */
import WebSocket from "ws";

import { Unavailable } from "../errors.js";
import type { Transport } from "../transport.js";
import { messageOf } from "./outcomes.js";

export const SUBPROTOCOL = "rota.v1.msgpack";
const OPEN_TIMEOUT_MS = 10_000;
const MAX_FRAME_BYTES = 256 * 1024 * 1024;
const CLOSE_TIMEOUT_MS = 1_000;
const NOT_SENT_CODES = new Set(["ECONNREFUSED", "EHOSTUNREACH", "ENETUNREACH", "ENOTFOUND", "EAI_AGAIN"]);

/** The coordinator, or a proxy in front of it, refuses WebSockets. */
export class StreamRefused extends Unavailable {}

export class StreamSocket {
  onMessage: (data: Buffer) => void = () => undefined;
  /** Resolved with the reason when the connection has ended. */
  readonly lost: Promise<string>;
  isLost = false;

  private constructor(private readonly socket: WebSocket) {
    let failure = "";
    this.lost = new Promise((resolve) => {
      socket.on("error", (error) => {
        failure = error.message;
      });
      socket.on("close", (code, reason) => {
        this.isLost = true;
        const text = reason.toString("utf8");
        resolve(failure || `closed by the other side (${code}${text === "" ? "" : `: ${text}`})`);
      });
    });
    socket.on("message", (data, isBinary) => {
      if (isBinary) {
        this.onMessage(data as Buffer);
      }
    });
  }

  /** Connect to the current coordinator; `StreamRefused` when only the handshake fails. */
  static open(transport: Transport): Promise<StreamSocket> {
    const address = transport.address;
    const url = `${address.replace(/^http/, "ws")}/ws`;
    return new Promise((resolve, reject) => {
      const socket = new WebSocket(url, [SUBPROTOCOL], {
        headers: transport.headers,
        handshakeTimeout: OPEN_TIMEOUT_MS,
        maxPayload: MAX_FRAME_BYTES,
        perMessageDeflate: false,
      });
      socket.binaryType = "nodebuffer";
      const opened = new StreamSocket(socket);
      socket.once("open", () => resolve(opened));
      socket.once("unexpected-response", (request, response) => {
        reject(new StreamRefused(`${address} answered the WebSocket with ${response.statusCode}`));
        request.destroy();
      });
      socket.once("error", (error) => {
        const code = (error as { code?: unknown }).code;
        if (typeof code === "string" && (NOT_SENT_CODES.has(code) || code === "ECONNRESET")) {
          transport.leave(address);
          const text = `the coordinator at ${address} cannot be reached: ${messageOf(error)}`;
          reject(new Unavailable(text, { isSent: !NOT_SENT_CODES.has(code) }));
        } else {
          reject(new StreamRefused(`no WebSocket with ${address}: ${messageOf(error)}`));
        }
      });
    });
  }

  send(data: Buffer): void {
    if (this.socket.readyState === WebSocket.OPEN) {
      this.socket.send(data);
    }
  }

  /** Close; the connection is cut if the other side does not answer in time. */
  async close(): Promise<void> {
    if (this.isLost) {
      return;
    }
    this.socket.close();
    const timer = setTimeout(() => this.socket.terminate(), CLOSE_TIMEOUT_MS);
    await this.lost;
    clearTimeout(timer);
  }

  /** Cut the connection. */
  terminate(): void {
    this.socket.terminate();
  }
}
