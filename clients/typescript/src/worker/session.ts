/**
 * One registration of a worker, valid until the coordinator refuses it.
 *
 * The lease counts from when the last answered heartbeat, or the registration, was *sent*, while the
 * coordinator counts from its arrival: the worker stops before others get its work.
 */
import type { WorkerView } from "../api.js";
import { RotaError } from "../errors.js";

/** Of a lease, reserved for stopping handlers. */
const MARGIN = 0.1;
const MAX_MARGIN_MS = 1_000;

export class WorkerSession {
  readonly workerId: string;
  readonly incarnation: number;
  readonly startedAt: number;
  private readonly over = new AbortController();
  renewedAt: number;
  intervalMs = 0;
  leaseMs = 0;

  constructor(view: WorkerView, sentAt: number) {
    this.workerId = view.id;
    this.incarnation = view.incarnation;
    this.startedAt = this.renewedAt = sentAt;
    this.setTerms(view.heartbeat_interval_ms, view.lease_ms);
  }

  get isOver(): boolean {
    return this.over.signal.aborted;
  }

  /** Aborted when the session is over. */
  get signal(): AbortSignal {
    return this.over.signal;
  }

  end(): void {
    this.over.abort();
  }

  setTerms(intervalMs: number, leaseMs: number): void {
    this.intervalMs = intervalMs;
    this.leaseMs = leaseMs;
  }

  /** When handlers must be stopped, unless the session is renewed before. */
  get endsAt(): number {
    return this.renewedAt + this.leaseMs - Math.min(this.leaseMs * MARGIN, MAX_MARGIN_MS);
  }
}

export type OnRefused = (session: WorkerSession, error: RotaError) => void;

/** Whether the coordinator no longer knows a registration. */
export function endsSession(error: unknown): error is RotaError {
  return (
    error instanceof RotaError &&
    (error.code === "worker_not_found" || error.code === "stale_incarnation")
  );
}
