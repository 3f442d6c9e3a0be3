/**
 * Gets work: keeps the worker's stream to the coordinator open, and polls where none is possible.
 *
 * A stream can be replaced at any time, because registration, leases and results do not depend on it.
 * When it breaks, another one is opened, at once and then with growing pauses; running attempts go on
 * meanwhile, and results and heartbeats go out as calls. Where a proxy blocks WebSockets, the worker
 * polls, and tries a stream again from time to time.
 */
import type { LeaseView } from "../api.js";
import type { Client } from "../client.js";
import { hasCode, RotaError, Unavailable } from "../errors.js";
import { Flag, jittered, nowMs, pause, RetryBackoff } from "../timing.js";
import type { CoordinatorContact } from "./contact.js";
import type { Logger } from "./logging.js";
import { endsSession, type OnRefused, type WorkerSession } from "./session.js";
import { StreamRefused, StreamSocket } from "./socket.js";
import { CoordinatorStream, type LeaseSink } from "./stream.js";

/** How a worker gets its leases: by a stream or else by polling, or by one of them only. */
export type LeaseTransport = "auto" | "websocket" | "http";

const RETRY_MOST_MS = 2_000;
const SHORT_LIVED_MS = 5_000; // a stream that breaks sooner counts as short-lived
const MOST_SHORT_LIVED = 3; // in a row; then the worker polls
const GATHER_MS = 2; // how long a free slot waits for a result that reports it
const POLL_WAIT_MS = 30_000;
const EARLY_MS = POLL_WAIT_MS / 2; // an empty answer before this time: the coordinator stops
const EARLY_PAUSE_MS = 1_000;
const MAX_LEASES_PER_CALL = 10_000;

export interface LeasingOptions {
  client: Client;
  log: Logger;
  contact: CoordinatorContact;
  sink: LeaseSink;
  transport: LeaseTransport;
  /** After streams proved impossible, one is tried again after this time. */
  streamRetryMs: number;
  /** The ids of the worker's tasks. */
  held: () => string[];
  /** A report will carry credit. */
  hasUnsent: () => boolean;
  onRefused: OnRefused;
  onCancelled: (cancelled: string[], lost: string[]) => void;
}

export class Leasing {
  /** The stream, while one is open. */
  stream: CoordinatorStream | undefined;
  private session: WorkerSession | undefined;
  private readonly changed = new Flag(); // the session, or free slots
  private readonly ended = new AbortController();
  private isGathering = false;
  private shortLived = 0;

  constructor(private readonly options: LeasingOptions) {}

  useSession(session: WorkerSession): void {
    this.session = session;
    this.wake();
  }

  /** Notice that the session has changed or is over, or that slots are free. */
  wake(): void {
    this.changed.set();
  }

  /** Send credit soon, unless a report carries it; called after every attempt. */
  noteFreeSlot(): void {
    this.wake();
    if (this.stream !== undefined && !this.isGathering) {
      this.isGathering = true;
      setTimeout(() => {
        this.isGathering = false;
        if (!this.options.hasUnsent()) {
          this.sendCredit();
        }
      }, GATHER_MS);
    }
  }

  /** Get work for every session that is used, until the end. */
  async run(): Promise<void> {
    try {
      while (!this.isEnded) {
        const session = await this.nextSession();
        if (session === undefined) {
          return;
        }
        if (this.options.transport === "http") {
          await this.poll(session, AbortSignal.any([this.ended.signal, session.signal]));
        } else {
          await this.streamOrPoll(session);
        }
      }
    } catch (error) {
      if (!this.isEnded) {
        throw error;
      }
    }
  }

  /** Take no more work; an open stream still carries results until `end`. */
  async stopLeasing(): Promise<void> {
    try {
      await this.stream?.stopLeasing(this.options.held());
    } catch (error) {
      if (!(error instanceof RotaError)) {
        throw error;
      }
    }
  }

  end(): void {
    this.ended.abort();
    this.wake();
  }

  private get isEnded(): boolean {
    return this.ended.signal.aborted;
  }

  private sendCredit(): void {
    try {
      this.stream?.credit();
    } catch (error) {
      if (!(error instanceof Unavailable)) {
        throw error; // a broken stream needs no credit
      }
    }
  }

  private async nextSession(): Promise<WorkerSession | undefined> {
    while (!this.isEnded && (this.session === undefined || this.session.isOver)) {
      this.changed.clear();
      await this.changed.wait();
    }
    return this.isEnded ? undefined : this.session;
  }

  // --- with a stream -----------------------------------------------------------------------------

  private async streamOrPoll(session: WorkerSession): Promise<void> {
    const backoff = new RetryBackoff(100, RETRY_MOST_MS);
    let reason = "it broke soon after opening, several times";
    while (!session.isOver && !this.isEnded) {
      try {
        await this.workOver(session);
        backoff.reset();
        if (this.shortLived < MOST_SHORT_LIVED) {
          continue;
        }
      } catch (error) {
        if (endsSession(error)) {
          this.options.onRefused(session, error);
          return;
        }
        if (!(error instanceof RotaError)) {
          throw error;
        }
        reason = error.message;
        if (!(error instanceof StreamRefused) && !hasCode(error, "unauthorized", "forbidden")) {
          this.options.contact.noteFailure("stream_unavailable", error);
          this.shortLived += error instanceof Unavailable && !error.isSent ? 0 : 1;
          if (this.shortLived < MOST_SHORT_LIVED) {
            await pause(backoff.waitMs(), this.ended.signal);
            continue;
          }
        }
      }
      this.shortLived = 0;
      await this.pollInstead(session, reason, backoff);
    }
  }

  /** Work over one stream until it breaks or the session is over. */
  private async workOver(session: WorkerSession): Promise<void> {
    const openedAt = nowMs();
    const socket = await StreamSocket.open(this.options.client.transport);
    const stream = new CoordinatorStream(socket, session, this.options.sink, {
      onRefused: this.options.onRefused,
      onCancelled: (taskIds) => this.options.onCancelled(taskIds, []),
      onUnreadable: (reason) => this.options.log.warn("coordinator_unreadable", { reason }),
    });
    let reason: string | undefined;
    try {
      const terms = await stream.resume(this.options.held());
      session.setTerms(terms.intervalMs, terms.leaseMs);
      this.options.onCancelled(terms.cancel, terms.lost);
      this.stream = stream;
      this.sendCredit();
      this.options.contact.noteAnswer();
      this.options.log.debug("streaming", { worker_id: session.workerId });
      void socket.lost.then((why) => {
        reason = why;
        this.wake();
      });
      while (reason === undefined && !session.isOver && this.session === session && !this.isEnded) {
        this.changed.clear();
        await this.changed.wait();
      }
    } finally {
      this.stream = undefined;
      await socket.close();
    }
    const isShortLived = nowMs() - openedAt < SHORT_LIVED_MS && !session.isOver;
    this.shortLived = isShortLived ? this.shortLived + 1 : 0;
    if (!session.isOver && !this.isEnded) {
      this.options.contact.noteLost(`the stream broke: ${reason}`);
    }
  }

  // --- without a stream --------------------------------------------------------------------------

  /** Poll until a socket can be opened; wait where only a stream is allowed. */
  private async pollInstead(
    session: WorkerSession,
    reason: string,
    backoff: RetryBackoff,
  ): Promise<void> {
    if (this.options.transport === "websocket") {
      this.options.log.warn("stream_unavailable", { reason });
      await pause(backoff.waitMs(1_000), this.ended.signal);
      return;
    }
    this.options.log.info("stream_unavailable", { hint: "polling instead", reason });
    const enough = new AbortController();
    const signal = AbortSignal.any([enough.signal, this.ended.signal, session.signal]);
    const polled = this.poll(session, signal);
    try {
      do {
        const again = pause(jittered(this.options.streamRetryMs), signal);
        await Promise.race([polled, again.catch(() => undefined)]);
      } while (!signal.aborted && !(await this.canOpen()));
    } finally {
      enough.abort();
      this.wake();
      await polled;
    }
  }

  private async canOpen(): Promise<boolean> {
    try {
      const socket = await StreamSocket.open(this.options.client.transport);
      await socket.close();
      return true;
    } catch {
      return false;
    }
  }

  /** Lease by long polls, one at a time, until the session is over or the signal is aborted. */
  private async poll(session: WorkerSession, signal: AbortSignal): Promise<void> {
    const backoff = new RetryBackoff();
    while (!session.isOver && !signal.aborted) {
      const free = Math.min(this.options.sink.freeSlots, MAX_LEASES_PER_CALL);
      if (free <= 0) {
        this.changed.clear();
        await this.changed.wait();
        continue;
      }
      try {
        const sentAt = nowMs();
        const leases = await this.lease(session, free, signal);
        this.options.contact.noteAnswer();
        if (session.isOver || signal.aborted) {
          return;
        }
        if (leases.length > 0 || nowMs() - sentAt >= EARLY_MS) {
          backoff.reset();
          this.options.sink.begin(leases);
        } else {
          await pause(backoff.waitMs(EARLY_PAUSE_MS), signal);
        }
      } catch (error) {
        if (signal.aborted) {
          return;
        }
        if (endsSession(error)) {
          this.options.onRefused(session, error);
          return;
        }
        if (!(error instanceof RotaError)) {
          throw error;
        }
        this.options.contact.noteFailure("lease_failed", error);
        await pause(backoff.waitMs(error.retryAfterMs), signal).catch(() => undefined);
      }
    }
  }

  private async lease(session: WorkerSession, max: number, signal: AbortSignal): Promise<LeaseView[]> {
    const answer = await this.options.client.call("POST /api/workers/{worker_id}/lease", {
      path: { worker_id: session.workerId },
      body: {
        incarnation: session.incarnation,
        max,
        wait_ms: POLL_WAIT_MS,
        // Leases whose answer was lost come again: this is the only call of the worker.
        running: this.options.held(),
      },
      waitMs: POLL_WAIT_MS,
      isRepeatedByCaller: true,
      signal,
    });
    return answer.leases;
  }
}
