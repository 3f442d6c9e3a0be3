/**
 * The worker's heartbeat.
 *
 * It beats over the worker's stream if that answers soon, and otherwise by a call. It also notices
 * that the session cannot be renewed in time; then handlers are stopped before the coordinator gives
 * their work to others.
 */
import type { HeartbeatAnswer } from "../api.js";
import type { Client } from "../client.js";
import { RotaError, Unavailable } from "../errors.js";
import { nowMs, pause } from "../timing.js";
import type { CoordinatorContact } from "./contact.js";
import { endsSession, type OnRefused, type WorkerSession } from "./session.js";
import type { CoordinatorStream } from "./stream.js";

const MOST_RETRY_PAUSE_MS = 1_000; // after a beat without an answer
const SHORTEST_TIMEOUT_MS = 100;

/** No beat got through for so long that the leases count as lost. */
export class CutOff extends Unavailable {}

export interface HeartbeatOptions {
  client: Client;
  contact: CoordinatorContact;
  stream: () => CoordinatorStream | undefined;
  held: () => string[];
  load: () => Record<string, number>;
  /** The answer does not know of leases that began after the beat was sent. */
  onBeat: (session: WorkerSession, sentAt: number, answer: HeartbeatAnswer) => void;
  onRefused: OnRefused;
}

export class Heartbeat {
  private underWay: Promise<unknown> | undefined; // a beat over a stream

  constructor(private readonly options: HeartbeatOptions) {}

  /** Renew a session until it is over. */
  async renew(session: WorkerSession): Promise<void> {
    let waitMs = session.intervalMs;
    for (;;) {
      const leftMs = Math.max(0, session.endsAt - nowMs());
      await pause(Math.min(waitMs, leftMs), session.signal).catch(() => undefined);
      if (session.isOver) {
        return;
      }
      if (nowMs() >= session.endsAt) {
        this.options.onRefused(session, new CutOff("no heartbeat got through for a whole lease"));
        return;
      }
      try {
        await this.beat(session);
        waitMs = session.intervalMs;
      } catch (error) {
        if (session.isOver) {
          return;
        }
        if (endsSession(error)) {
          this.options.onRefused(session, error);
          return;
        }
        if (!(error instanceof RotaError)) {
          throw error;
        }
        this.options.contact.noteFailure("heartbeat_failed", error);
        waitMs = Math.min(session.intervalMs / 3, MOST_RETRY_PAUSE_MS);
      }
    }
  }

  private async beat(session: WorkerSession): Promise<void> {
    let sentAt = nowMs();
    let answer = await this.beatOverStream(session);
    if (answer === undefined) {
      sentAt = nowMs();
      answer = await this.options.client.call("POST /api/workers/{worker_id}/heartbeat", {
        path: { worker_id: session.workerId },
        body: {
          incarnation: session.incarnation,
          running: this.options.held(),
          load: this.options.load(),
        },
        // Half of the remaining time, so that another try on another connection is possible.
        timeoutMs: Math.max(SHORTEST_TIMEOUT_MS, (session.endsAt - sentAt) / 2),
        isRepeatedByCaller: true,
        signal: session.signal,
      });
    }
    this.options.contact.noteAnswer();
    session.renewedAt = sentAt;
    session.setTerms(answer.heartbeat_interval_ms, answer.lease_ms);
    this.options.onBeat(session, sentAt, answer);
  }

  /** Beat over the stream; undefined when there is none, or it does not answer soon. */
  private async beatOverStream(session: WorkerSession): Promise<HeartbeatAnswer | undefined> {
    const stream = this.options.stream();
    if (stream === undefined || stream.session !== session || this.underWay !== undefined) {
      return undefined;
    }
    const beat = stream.beat(this.options.held(), this.options.load());
    const underWay = beat
      .catch(() => undefined)
      .finally(() => {
        this.underWay = undefined;
      });
    this.underWay = underWay;
    const late = new AbortController();
    try {
      const soon = pause(session.intervalMs / 2, late.signal).then(() => undefined);
      soon.catch(() => undefined); // aborted below
      return await Promise.race([beat, soon]);
    } catch (error) {
      if (error instanceof Unavailable) {
        return undefined;
      }
      throw error;
    } finally {
      late.abort();
    }
  }
}
