/**
 * A worker, from its first registration to its leaving.
 *
 * Registering and leaving are calls; in between a stream carries leases, results and heartbeats. When
 * the coordinator no longer knows the registration, or it cannot be renewed in time, everything that
 * runs under it is stopped and the worker registers again, without end.
 *
 * Stopping is draining: the worker takes no new work, running handlers may finish within a limit,
 * results are delivered, and the worker leaves, which hands back its remaining leases.
 */
import { hostname } from "node:os";

import type { LeaseView, WorkerRegistration } from "../api.js";
import { Client, type ClientOptions } from "../client.js";
import { RotaError } from "../errors.js";
import type { TaskDefinition } from "../tasks.js";
import { Flag, nowMs, pause, RetryBackoff } from "../timing.js";
import { CoordinatorContact } from "./contact.js";
import { Executor, type Handler, type StopCause } from "./executor.js";
import { CutOff, Heartbeat } from "./heartbeat.js";
import { Leasing, type LeaseTransport } from "./leasing.js";
import { DEFAULT_LOGGER, type Logger } from "./logging.js";
import { messageOf } from "./outcomes.js";
import { ProgressReporter, Reporter } from "./reporting.js";
import { WorkerSession } from "./session.js";

const CLEAN_UP_MS = 2_000; // how long stopped handlers may clean up
const LEAVE_TIMEOUT_MS = 5_000;
const HURRIED_LEAVE_TIMEOUT_MS = 1_000;
const REPLACED_AT_MOST = 1; // by another process under the same id; once may be a restart
const SETTLED_AFTER_LEASES = 10; // a session that lasted so long resets the count of replacements
const MAX_CONCURRENCY = 100_000;
const SIGNALS = ["SIGTERM", "SIGINT"] as const;

export interface WorkerOptions extends ClientOptions {
  /** Instead of `url` and `token`. */
  client?: Client;
  /** Tasks that run at once. Default: 10. */
  concurrency?: number;
  /** Default: the coordinator gives one. Each process needs its own. */
  workerId?: string;
  /** The machine or process, for people. Default: host name and process id. */
  nodeId?: string;
  /** Queues that it serves. Default: all. */
  queues?: string[];
  /** What it has, for tasks that require it. */
  capabilities?: string[];
  group?: string;
  labels?: WorkerRegistration["labels"];
  /** Between two heartbeats. Default: 5 seconds. */
  heartbeatIntervalMs?: number;
  /** How long running handlers may finish after a stop. Default: 30 seconds. */
  drainMs?: number;
  /** Default: a stream, or polling where no stream is possible. */
  transport?: LeaseTransport;
  /** How long the worker polls before it tries a stream again. Default: 1 minute. */
  streamRetryMs?: number;
  /** Default: JSON lines on standard error, without `debug`. */
  logger?: Logger;
}

/** Why a worker has ended; `replaced`: another process uses its id. */
export type StopReason = "stopped" | "replaced";

export class Worker {
  private readonly client: Client;
  private readonly log: Logger;
  private readonly handlers = new Map<string, Handler>();
  private readonly executor: Executor;
  private readonly reporter: Reporter;
  private readonly progress: ProgressReporter;
  private readonly leasing: Leasing;
  private readonly heartbeat: Heartbeat;
  private readonly contact: CoordinatorContact;
  private readonly changed = new Flag(); // wakes the drain
  private readonly stopRequested = new AbortController();
  private session: WorkerSession | undefined;
  private abandoned: WorkerSession | undefined;
  private givenId: string | undefined;
  private replaced = 0;
  private reason: StopReason | undefined;
  private drainUntil: number | undefined;
  private isHurried = false;
  private isRunning = false;
  private isLeaving = false;

  constructor(private readonly options: WorkerOptions = {}) {
    const concurrency = options.concurrency ?? 10;
    if (!Number.isInteger(concurrency) || concurrency < 1 || concurrency > MAX_CONCURRENCY) {
      throw new RotaError("invalid", `concurrency is 1 to ${MAX_CONCURRENCY}, not ${concurrency}`);
    }
    this.client = options.client ?? new Client(options);
    this.log = options.logger ?? DEFAULT_LOGGER;
    this.givenId = options.workerId;
    this.contact = new CoordinatorContact(this.log);
    const onRefused = (session: WorkerSession, error: RotaError): void =>
      this.endSession(session, error);
    const shared = {
      client: this.client,
      log: this.log,
      contact: this.contact,
      session: () => this.session,
      stream: () => this.leasing.stream,
      held: () => this.held(),
      onRefused,
    };
    this.reporter = new Reporter(shared, () => this.changed.set());
    this.progress = new ProgressReporter(shared);
    this.executor = new Executor(this.handlers, concurrency, {
      onReport: (lease, report) => this.reporter.add(lease, report),
      onProgress: (lease, progress, partial) => this.progress.note(lease, progress, partial),
      onFreeSlot: () => {
        this.leasing.noteFreeSlot();
        this.changed.set();
      },
    });
    this.leasing = new Leasing({
      ...shared,
      sink: this,
      transport: options.transport ?? "auto",
      streamRetryMs: options.streamRetryMs ?? 60_000,
      hasUnsent: () => this.reporter.hasUnsent,
      onCancelled: (cancelled, lost) => {
        this.stopAttempts("cancelled", cancelled);
        this.stopAttempts("lost", lost);
      },
    });
    this.heartbeat = new Heartbeat({
      ...shared,
      load: () => ({ running: this.executor.running.size }),
      onBeat: (session, sentAt, answer) => {
        if (!session.isOver) {
          this.stopAttempts("cancelled", answer.cancel ?? [], sentAt);
          this.stopAttempts("lost", answer.lost ?? [], sentAt);
        }
      },
    });
  }

  /** The worker's id, once it has registered. */
  get id(): string | undefined {
    return this.session?.workerId ?? this.givenId;
  }

  /** Run a task with a handler. Give all handlers before `run`. */
  handle<Payload, Result>(
    task: TaskDefinition<Payload, Result> | string,
    handler: Handler<Payload, Result>,
  ): this {
    const name = typeof task === "string" ? task : task.name;
    if (this.isRunning) {
      throw new RotaError("invalid", `the handler of '${name}' comes too late: the worker runs`);
    }
    if (this.handlers.has(name)) {
      throw new RotaError("invalid", `there are two handlers for '${name}'`);
    }
    this.handlers.set(name, handler as Handler);
    return this;
  }

  // --- from start to stop ------------------------------------------------------------------------

  /**
   * Work until a stop is requested, then drain and leave.
   *
   * SIGTERM and SIGINT request a stop, and a second one hurries; `handleSignals: false` leaves them
   * to the program.
   */
  async run(options: { handleSignals?: boolean; signal?: AbortSignal } = {}): Promise<StopReason> {
    if (this.isRunning || this.handlers.size === 0) {
      const text = this.isRunning ? "a worker runs once; make another one" : "no task has a handler";
      throw new RotaError("invalid", text);
    }
    this.isRunning = true;
    const onSignal = (): void => (this.reason === undefined ? this.stop() : this.hurry());
    const onAbort = (): void => this.stop();
    if (options.handleSignals ?? true) {
      for (const name of SIGNALS) {
        process.on(name, onSignal);
      }
    }
    options.signal?.addEventListener("abort", onAbort, { once: true });
    if (options.signal?.aborted) {
      this.stop();
    }
    try {
      return await this.work();
    } finally {
      options.signal?.removeEventListener("abort", onAbort);
      for (const name of SIGNALS) {
        process.off(name, onSignal);
      }
    }
  }

  /** Drain and leave. */
  stop(): void {
    this.stopFor("stopped");
  }

  /** Leave now and hand back what runs. */
  hurry(): void {
    this.isHurried = true;
    this.stop();
    this.changed.set();
  }

  private stopFor(reason: StopReason): void {
    this.reason ??= reason;
    this.drainUntil ??= nowMs() + (this.options.drainMs ?? 30_000);
    this.stopRequested.abort();
  }

  private async work(): Promise<StopReason> {
    const stopped = new Promise<void>((resolve) => {
      const { signal } = this.stopRequested;
      signal.aborted ? resolve() : signal.addEventListener("abort", () => resolve());
    });
    const services = [this.leasing.run(), this.stayRegistered()];
    // An error of a service ends the worker; that a service has ended does not.
    const broken = Promise.all(services).then(() => new Promise<never>(() => undefined));
    try {
      await Promise.race([stopped, broken]);
      await Promise.race([this.drain(), broken]);
    } finally {
      this.stopRequested.abort();
      this.executor.stopAll("stopping");
      this.leasing.end();
      await this.leave();
      await Promise.allSettled(services);
    }
    return this.reason ?? "stopped";
  }

  private async drain(): Promise<void> {
    if (this.leasing.stream === undefined) {
      this.leasing.end();
    } else {
      void this.leasing.stopLeasing(); // the stream still carries results
    }
    await this.waitUntil(() => this.executor.running.size === 0 && this.reporter.pending.size === 0);
    if (this.executor.running.size > 0) {
      this.log.warn("leases_handed_back", { count: this.executor.running.size });
    }
    this.executor.stopAll("stopping");
    if (!this.isHurried) {
      this.drainUntil = nowMs() + CLEAN_UP_MS;
      await this.waitUntil(() => this.executor.isIdle);
    }
  }

  /** Wait for a condition within the time limit of the drain, unless in a hurry. */
  private async waitUntil(isQuiet: () => boolean): Promise<void> {
    while (!isQuiet() && !this.isHurried) {
      const leftMs = (this.drainUntil ?? 0) - nowMs();
      if (leftMs <= 0) {
        return;
      }
      this.changed.clear();
      await this.changed.wait(leftMs);
    }
  }

  private async leave(): Promise<void> {
    this.isLeaving = true;
    const session = this.session;
    if (session === undefined || session.isOver) {
      return;
    }
    session.end();
    try {
      await this.sendLeave(session, this.isHurried ? HURRIED_LEAVE_TIMEOUT_MS : LEAVE_TIMEOUT_MS);
    } catch (error) {
      if (!(error instanceof RotaError)) {
        throw error;
      }
      this.log.debug("leave_failed", { reason: error.message }); // then the lease expires
    }
  }

  private async sendLeave(session: WorkerSession, timeoutMs: number): Promise<void> {
    await this.client.call("DELETE /api/workers/{worker_id}", {
      path: { worker_id: session.workerId },
      query: { incarnation: session.incarnation },
      timeoutMs,
      isRepeatedByCaller: true,
    });
  }

  // --- sessions ----------------------------------------------------------------------------------

  private async stayRegistered(): Promise<void> {
    while (!this.stopRequested.signal.aborted) {
      const session = await this.register();
      if (session === undefined) {
        return;
      }
      this.session = session;
      if (this.isLeaving) {
        await this.leave(); // the answer came after the stop
        return;
      }
      this.givenId = session.workerId; // under it, the worker is the same after a reconnect
      this.leasing.useSession(session);
      this.log.info("worker_registered", {
        worker_id: session.workerId,
        incarnation: session.incarnation,
      });
      await this.heartbeat.renew(session); // until the session is over
    }
  }

  /** Register; undefined when a stop is requested before. */
  private async register(): Promise<WorkerSession | undefined> {
    const backoff = new RetryBackoff();
    const { signal } = this.stopRequested;
    while (!signal.aborted) {
      try {
        await this.leaveAbandoned();
        const sentAt = nowMs();
        const body = this.registration();
        const view = await this.client.call("POST /api/workers", {
          body,
          isRepeatedByCaller: true,
          signal,
        });
        this.contact.noteAnswer();
        return new WorkerSession(view, sentAt);
      } catch (error) {
        if (signal.aborted) {
          return undefined;
        }
        const isRefused = error instanceof RotaError && [400, 401, 403].includes(error.status ?? 0);
        if (!(error instanceof RotaError) || isRefused) {
          throw error; // another try would not help
        }
        this.contact.noteFailure("registration_failed", error);
        await pause(backoff.waitMs(error.retryAfterMs), signal).catch(() => undefined);
      }
    }
    return undefined;
  }

  private registration(): WorkerRegistration {
    const { options } = this;
    return {
      node_id: (options.nodeId ?? `${hostname()}:${process.pid}`).slice(0, 200),
      max_concurrent_tasks: options.concurrency ?? 10,
      tasks: [...this.handlers.keys()],
      capabilities: options.capabilities ?? [],
      ...(options.heartbeatIntervalMs === undefined
        ? {}
        : { heartbeat_interval_ms: options.heartbeatIntervalMs }),
      ...(this.givenId === undefined ? {} : { worker_id: this.givenId }),
      ...(options.queues === undefined ? {} : { queues: options.queues }),
      ...(options.group === undefined ? {} : { group: options.group }),
      ...(options.labels == null ? {} : { labels: options.labels }),
    };
  }

  /** Leave a session that was cut off, so that its tasks do not lose the attempt. */
  private async leaveAbandoned(): Promise<void> {
    const session = this.abandoned;
    if (session === undefined) {
      return;
    }
    try {
      await this.sendLeave(session, LEAVE_TIMEOUT_MS);
    } catch (error) {
      const isGone = error instanceof RotaError && (error.status === 404 || error.status === 409);
      if (!isGone) {
        throw error;
      }
    }
    this.abandoned = undefined;
  }

  /** Stop everything that runs under a session; the worker registers again. */
  private endSession(session: WorkerSession, error: RotaError): void {
    if (session.isOver) {
      return;
    }
    session.end();
    this.log.warn("registration_lost", { reason: messageOf(error) });
    this.abandoned = error instanceof CutOff ? session : undefined;
    this.leasing.wake();
    this.reporter.clear();
    this.executor.stopAll("lost");
    if (error.code === "stale_incarnation" && this.isReplacedForGood(session)) {
      this.log.error("worker_id_taken", {
        hint: "give each process its own worker id",
        worker_id: session.workerId,
      });
      this.stopFor("replaced");
    }
    this.changed.set();
  }

  private isReplacedForGood(session: WorkerSession): boolean {
    if (nowMs() - session.startedAt > SETTLED_AFTER_LEASES * session.leaseMs) {
      this.replaced = 0;
    }
    this.replaced += 1;
    return this.replaced > REPLACED_AT_MOST;
  }

  // --- leases ------------------------------------------------------------------------------------

  /** Slots for more leases; part of the interface to the stream. */
  get freeSlots(): number {
    return this.reason === undefined ? this.executor.freeSlots : 0;
  }

  /** Begin leased tasks; part of the interface to the stream. */
  begin(leases: LeaseView[]): void {
    this.executor.begin(leases);
  }

  /** The ids of tasks that are running, or finished and not known to be accepted. */
  private held(): string[] {
    return [...new Set([...this.executor.running.keys(), ...this.reporter.pending.keys()])];
  }

  private stopAttempts(
    why: StopCause,
    taskIds: readonly string[],
    leasedBefore = Number.POSITIVE_INFINITY,
  ): void {
    for (const taskId of taskIds) {
      const attempt = this.executor.running.get(taskId);
      if (attempt !== undefined && attempt.leasedAt < leasedBefore) {
        this.log.info("stopping", { task_id: taskId, task: attempt.lease.name, reason: why });
        this.executor.stop(attempt, why);
      }
    }
  }
}
