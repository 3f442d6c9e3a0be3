/**
 * Reports results and progress to the coordinator, over the worker's stream or by calls.
 *
 * One report is under way at a time; what finishes in the meantime goes with the next. A report
 * without an answer is sent again until it is answered or its leases are over: results are safe to
 * repeat. A refused report is sent in halves until the result that caused the refusal is alone. Of
 * the progress that a task reports, only the newest is sent.
 */
import type { LeaseView } from "../api.js";
import type { Client } from "../client.js";
import { hasCode, RotaError, Unavailable } from "../errors.js";
import { pause, RetryBackoff } from "../timing.js";
import type { Logger } from "./logging.js";
import { failure, messageOf, type Report } from "./outcomes.js";
import { endsSession, type OnRefused, type WorkerSession } from "./session.js";
import type { CoordinatorStream, ProgressReport } from "./stream.js";

const MAX_REPORT_ITEMS = 5_000;
const MAX_REPORT_CHARACTERS = 8 * 1024 * 1024;
const RETRY_MOST_MS = 2_000;
const REFUSED_RESULT = "refused_result";

type Finished = readonly [lease: LeaseView, report: Report];

/** What the reporters share: where to send, for which session. */
export interface ReportingOptions {
  client: Client;
  log: Logger;
  session: () => WorkerSession | undefined;
  stream: () => CoordinatorStream | undefined;
  onRefused: OnRefused;
}

export class Reporter {
  /** Finished here, not known to be accepted, by task id. */
  readonly pending = new Map<string, LeaseView>();
  private waiting: Finished[] = [];
  private isBusy = false;

  constructor(
    private readonly options: ReportingOptions,
    private readonly onDelivered: () => void,
  ) {}

  get hasUnsent(): boolean {
    return this.waiting.length > 0;
  }

  add(lease: LeaseView, report: Report): void {
    this.pending.set(lease.task_id, lease);
    this.waiting.push([lease, report]);
    if (!this.isBusy) {
      this.isBusy = true;
      // Results that end in the same turn of the event loop go together.
      setImmediate(() => void this.deliverAll());
    }
  }

  /** Drop all unreported results: the session is over, and with it their leases. */
  clear(): void {
    if (this.pending.size > 0) {
      this.options.log.warn("results_dropped", {
        reason: "their leases have expired",
        count: this.pending.size,
      });
    }
    this.pending.clear();
    this.waiting = [];
  }

  private async deliverAll(): Promise<void> {
    try {
      while (this.waiting.length > 0) {
        const session = this.options.session();
        if (session === undefined || session.isOver) {
          break;
        }
        await this.deliver(session, this.take());
        this.onDelivered();
      }
    } finally {
      this.isBusy = false;
    }
  }

  private take(): Finished[] {
    let size = 0;
    let count = 0;
    while (count < this.waiting.length && count < MAX_REPORT_ITEMS && size < MAX_REPORT_CHARACTERS) {
      size += this.waiting[count]?.[1].result?.length ?? 0;
      count += 1;
    }
    return this.waiting.splice(0, count);
  }

  private async deliver(session: WorkerSession, batch: readonly Finished[]): Promise<void> {
    const backoff = new RetryBackoff(100, RETRY_MOST_MS);
    while (!session.isOver) {
      try {
        const refused = await this.send(session, batch.map(([, report]) => report));
        this.noteAccepted(session, batch);
        if (refused.length > 0) {
          this.options.log.info("results_late", { count: refused.length, outcomes: refused.join(", ") });
        }
        return;
      } catch (error) {
        if (endsSession(error)) {
          this.options.onRefused(session, error);
        } else if (hasCode(error, "invalid", "malformed", "too_large")) {
          await this.deliverApart(session, batch, error);
          return;
        } else if (!(error instanceof RotaError)) {
          throw error;
        } else if (!session.isOver) {
          this.options.log.warn("results_delayed", { reason: messageOf(error) });
          await pause(backoff.waitMs(error.retryAfterMs));
        }
      }
    }
  }

  /** Send one report; resolves to the outcomes of results that came too late. */
  private async send(session: WorkerSession, reports: readonly Report[]): Promise<string[]> {
    const stream = this.options.stream();
    if (stream !== undefined && stream.session === session) {
      try {
        return await stream.report(reports);
      } catch (error) {
        if (!hasCode(error, "too_large")) {
          throw error; // too large for a frame is maybe not too large for a call
        }
      }
    }
    const results = reports.map((one) =>
      one.result === undefined ? one : { ...one, result: JSON.parse(one.result) as unknown },
    );
    const answer = await this.options.client.call("POST /api/workers/{worker_id}/results", {
      path: { worker_id: session.workerId },
      body: { incarnation: session.incarnation, results },
      isRepeatable: true,
    });
    return answer.outcomes.map((one) => one.outcome).filter((one) => one !== "accepted");
  }

  private noteAccepted(session: WorkerSession, batch: readonly Finished[]): void {
    if (session.isOver) {
      return;
    }
    for (const [lease] of batch) {
      // The same task may be here again, under a newer fence.
      if (this.pending.get(lease.task_id) === lease) {
        this.pending.delete(lease.task_id);
      }
    }
  }

  /** Find the result that the coordinator refuses, and report an error in its place. */
  private async deliverApart(
    session: WorkerSession,
    batch: readonly Finished[],
    error: RotaError,
  ): Promise<void> {
    const [first] = batch;
    if (first === undefined) {
      return;
    }
    if (batch.length > 1) {
      const middle = Math.floor(batch.length / 2);
      await this.deliver(session, batch.slice(0, middle));
      await this.deliver(session, batch.slice(middle));
      return;
    }
    const [lease, report] = first;
    const fields = { task_id: lease.task_id, task: lease.name, reason: error.message };
    this.options.log.error("result_refused", fields);
    if (report.error?.type === REFUSED_RESULT) {
      this.pending.delete(lease.task_id);
      return;
    }
    const text = `the result of '${lease.name}' was refused: ${error.message}`;
    await this.deliver(session, [[lease, failure(lease, REFUSED_RESULT, text, { isRetryable: false })]]);
  }
}

export class ProgressReporter {
  private waiting = new Map<string, ProgressReport>();
  private isBusy = false;

  constructor(private readonly options: ReportingOptions) {}

  /** Note the newest progress of a task; what JSON cannot write is an error of the handler. */
  note(lease: LeaseView, progress: unknown, partial: unknown): void {
    const before = this.waiting.get(lease.task_id);
    const kept = before?.fence === lease.fence ? before : undefined;
    const item: ProgressReport = { ...kept, taskId: lease.task_id, fence: lease.fence };
    if (progress !== undefined) {
      item.progress = JSON.stringify(progress);
    }
    if (partial !== undefined) {
      item.partial = JSON.stringify(partial);
    }
    this.waiting.set(lease.task_id, item);
    if (!this.isBusy) {
      this.isBusy = true;
      setImmediate(() => void this.sendAll());
    }
  }

  private async sendAll(): Promise<void> {
    const backoff = new RetryBackoff();
    try {
      for (;;) {
        const session = this.options.session();
        if (this.waiting.size === 0 || session === undefined || session.isOver) {
          this.waiting.clear();
          return;
        }
        const items = this.waiting;
        this.waiting = new Map();
        try {
          await this.send(session, [...items.values()]);
          backoff.reset();
        } catch (error) {
          if (!(error instanceof RotaError)) {
            throw error;
          }
          if (error instanceof Unavailable) {
            this.waiting = new Map([...items, ...this.waiting]);
            await pause(backoff.waitMs(error.retryAfterMs));
          } else if (error.status !== 409 && error.status !== 404) {
            this.options.log.warn("progress_refused", { reason: error.message });
          }
        }
      }
    } finally {
      this.isBusy = false;
    }
  }

  private async send(session: WorkerSession, items: ProgressReport[]): Promise<void> {
    const stream = this.options.stream();
    if (stream !== undefined && stream.session === session) {
      try {
        await stream.progress(items);
        return;
      } catch (error) {
        if (!hasCode(error, "too_large")) {
          throw error;
        }
      }
    }
    await this.options.client.call("POST /api/workers/{worker_id}/progress", {
      path: { worker_id: session.workerId },
      body: {
        incarnation: session.incarnation,
        items: items.map((one) => ({
          task_id: one.taskId,
          fence: one.fence,
          ...(one.progress === undefined ? {} : { progress: JSON.parse(one.progress) as unknown }),
          ...(one.partial === undefined ? {} : { partial: JSON.parse(one.partial) as unknown }),
        })),
      },
      isRepeatable: true,
    });
  }
}
