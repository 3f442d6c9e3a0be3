/** Something between a worker and its coordinator, as networks have it, that can misbehave. */
import { connect, createServer, type AddressInfo, type Server, type Socket } from "node:net";

const REFUSAL = "HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\nconnection: close\r\n\r\n";

export class TcpRelay {
  /** As a proxy that knows nothing of WebSockets. */
  refusesSockets = false;
  /** Every connection breaks at once. */
  isAway = false;
  private readonly open = new Set<Socket>();

  private constructor(
    private readonly server: Server,
    private readonly target: URL,
  ) {
    server.on("connection", (client) => this.serve(client));
  }

  static async start(target: string): Promise<TcpRelay> {
    const relay = new TcpRelay(createServer(), new URL(target));
    await new Promise<void>((resolve) => relay.server.listen(0, "127.0.0.1", resolve));
    return relay;
  }

  get url(): string {
    return `http://127.0.0.1:${(this.server.address() as AddressInfo).port}`;
  }

  /** All connections break. */
  cut(): void {
    for (const one of this.open) {
      one.destroy();
    }
  }

  async stop(): Promise<void> {
    this.cut();
    await new Promise((resolve) => this.server.close(resolve));
  }

  private serve(client: Socket): void {
    this.watch(client);
    if (this.isAway) {
      client.destroy();
      return;
    }
    client.once("data", (first) => {
      if (this.refusesSockets && first.toString("latin1").startsWith("GET /ws")) {
        client.end(REFUSAL);
        return;
      }
      const server = connect(Number(this.target.port), this.target.hostname);
      this.watch(server);
      server.write(first);
      client.pipe(server);
      server.pipe(client);
      client.on("close", () => server.destroy());
      server.on("close", () => client.destroy());
    });
  }

  private watch(socket: Socket): void {
    this.open.add(socket);
    socket.on("error", () => socket.destroy());
    socket.on("close", () => this.open.delete(socket));
  }
}
