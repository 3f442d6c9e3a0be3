/** What the tests share: the coordinator that they are run against, names, and raw workers. */
import { createServer, type Server } from "node:http";
import type { AddressInfo } from "node:net";

import { type api, Client } from "../src/index.js";

/** The address of a running coordinator; tests/clients/test_typescript.py starts one. */
export const URL_UNDER_TEST: string = (() => {
  const url = process.env["ROTA_TEST_URL"];
  if (url === undefined) {
    throw new Error("ROTA_TEST_URL names no coordinator; run tests/clients/test_typescript.py");
  }
  return url;
})();

let count = 0;

/** A name that no other test uses. */
export function unique(name: string): string {
  count += 1;
  return `${name}-${process.pid}-${count}`;
}

export function newClient(url = URL_UNDER_TEST): Client {
  return new Client({ url });
}

/** A worker of single HTTP calls, for tests that decide themselves what it does. */
export class RawWorker {
  private constructor(
    private readonly client: Client,
    readonly id: string,
    private readonly incarnation: number,
  ) {}

  static async register(client: Client, queue: string): Promise<RawWorker> {
    const body = { worker_id: unique("raw"), queues: [queue], max_concurrent_tasks: 100 };
    const worker = await client.call("POST /api/workers", { body });
    return new RawWorker(client, worker.id, worker.incarnation);
  }

  async lease(max = 1): Promise<api.LeaseView[]> {
    const body = { incarnation: this.incarnation, max, wait_ms: 10_000 };
    const path = { worker_id: this.id };
    const answer = await this.client.call("POST /api/workers/{worker_id}/lease", { path, body });
    return answer.leases;
  }

  async report(...results: api.ResultItem[]): Promise<string[]> {
    const body = { incarnation: this.incarnation, results };
    const path = { worker_id: this.id };
    const answer = await this.client.call("POST /api/workers/{worker_id}/results", { path, body });
    return answer.outcomes.map((one) => one.outcome);
  }

  async finish(result: unknown): Promise<api.LeaseView> {
    const [lease] = await this.lease();
    if (lease === undefined) {
      throw new Error("no task was leased within 10 s");
    }
    await this.report({ task_id: lease.task_id, fence: lease.fence, ok: true, result });
    return lease;
  }
}

/** What a relay does with a request: pass it on, drop it before or after, or answer by itself. */
export type Treatment =
  | "pass"
  | "refuse_upgrade"
  | "drop_request"
  | "drop_answer"
  | { status: number; body: string; headers?: Record<string, string> };

/** An HTTP server in front of the coordinator that loses what a test tells it to lose. */
export class Relay {
  readonly seen: string[] = [];
  private constructor(
    private readonly server: Server,
    readonly url: string,
  ) {}

  static async start(treat: (request: string, index: number) => Treatment): Promise<Relay> {
    const server = createServer((request, response) => {
      void (async () => {
        const name = `${request.method} ${request.url?.split("?")[0]}`;
        relay.seen.push(name);
        const treatment = treat(name, relay.seen.length - 1);
        const pieces: Buffer[] = [];
        for await (const piece of request) {
          pieces.push(piece as Buffer);
        }
        if (treatment === "drop_request") {
          request.socket.destroy();
          return;
        }
        if (typeof treatment === "object") {
          response.writeHead(treatment.status, treatment.headers).end(treatment.body);
          return;
        }
        const answer = await fetch(URL_UNDER_TEST + request.url, {
          method: request.method ?? "GET",
          body: pieces.length === 0 ? null : Buffer.concat(pieces),
        });
        const text = await answer.text();
        if (treatment === "drop_answer") {
          request.socket.destroy();
          return;
        }
        const type = answer.headers.get("content-type") ?? "text/plain";
        response.writeHead(answer.status, { "content-type": type }).end(text);
      })().catch(() => request.socket.destroy());
    });
    await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
    const { port } = server.address() as AddressInfo;
    const relay = new Relay(server, `http://127.0.0.1:${port}`);
    return relay;
  }

  async stop(): Promise<void> {
    this.server.closeAllConnections();
    await new Promise((resolve) => this.server.close(resolve));
  }
}

/** The address of a port on which nothing listens. */
export async function closedAddress(): Promise<string> {
  const relay = await Relay.start(() => "pass");
  await relay.stop();
  return relay.url;
}
