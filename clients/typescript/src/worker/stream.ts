/**
 * The worker's stream: credit and results out, leases and answers in.
 *
 * Both sides count the worker's free slots. A credit states how many slots are free and how many
 * leases the worker has received so far; the coordinator subtracts the leases under way. So the
 * worker sends a credit only when its free slots differ from the number that the coordinator expects.
 */
import type { HeartbeatAnswer, LeaseView } from "../api.js";
import { errorNamed, RotaError, Unavailable } from "../errors.js";
import { decode, encode, type Packed } from "./msgpack.js";
import { messageOf, type Report } from "./outcomes.js";
import type { OnRefused, WorkerSession } from "./session.js";
import { StreamRefused, type StreamSocket } from "./socket.js";

const COORDINATOR = "coordinator:main";
const UNKNOWN_TYPE = "Unknown message type";
/** How long the answer to a message may take; then the stream counts as broken. */
const ANSWER_TIMEOUT_MS = 30_000;

/** Where leases go, and how many more it takes. */
export interface LeaseSink {
  readonly freeSlots: number;
  begin(leases: LeaseView[]): void;
}

/** The progress of one task; the values are JSON texts. */
export interface ProgressReport {
  taskId: string;
  fence: number;
  progress?: string;
  partial?: string;
}

export interface StreamTerms {
  intervalMs: number;
  leaseMs: number;
  cancel: string[];
  lost: string[];
}

interface Call {
  resolve: (payload: Fields) => void;
  reject: (error: unknown) => void;
  timer: NodeJS.Timeout;
}

type Fields = Record<string, Packed>;

export interface StreamEvents {
  onRefused: OnRefused;
  onCancelled: (taskIds: string[]) => void;
  onUnreadable: (reason: string) => void;
}

export class CoordinatorStream {
  private maxFrameBytes = 1024 * 1024;
  private number = 0;
  private readonly calls = new Map<number, Call>();
  private isLeasing = true;
  private received = 0; // leases, over this stream
  private expectedFree = 0; // the free slots that the coordinator knows of

  constructor(
    private readonly socket: StreamSocket,
    readonly session: WorkerSession,
    private readonly sink: LeaseSink,
    private readonly events: StreamEvents,
  ) {
    socket.onMessage = (data) => this.receive(data);
    // Callers that wait for an answer get an error, even while the stream is being opened.
    void socket.lost.then((reason) => this.fail(reason));
  }

  // --- sending -----------------------------------------------------------------------------------

  /** Attach to the session's registration; leases not in `running` go back. */
  async resume(running: readonly string[]): Promise<StreamTerms> {
    const opened = await this.call("stream_resume", {
      worker_id: this.session.workerId,
      incarnation: this.session.incarnation,
      running: running.map(taskNumber),
    });
    this.maxFrameBytes = Number(opened["max_frame_bytes"] ?? this.maxFrameBytes);
    return {
      intervalMs: Number(opened["heartbeat_interval_ms"]),
      leaseMs: Number(opened["lease_ms"]),
      cancel: taskIds(opened["cancel"]),
      lost: taskIds(opened["lost"]),
    };
  }

  /** Take no more leases; those under way go back at once, because they do not run. */
  async stopLeasing(running: readonly string[]): Promise<void> {
    this.isLeasing = false;
    this.received = this.expectedFree = 0;
    await this.resume(running);
  }

  /** Send the number of free slots, if the coordinator expects another one. */
  credit(): void {
    const free = this.freeSlots();
    if (free !== this.expectedFree) {
      this.expectedFree = free;
      this.send("stream_credit", { free, taken: this.received });
    }
  }

  /** Send results with a credit; resolves to the refused outcomes when they are committed. */
  async report(reports: readonly Report[]): Promise<string[]> {
    const free = this.freeSlots();
    const payload = { results: reports.map(resultRow), free, taken: this.received };
    const noted = this.call("stream_results", payload);
    this.expectedFree = free;
    const refused = ((await noted)["refused"] ?? []) as [Packed, string][];
    return refused.map(([, outcome]) => outcome);
  }

  async progress(items: readonly ProgressReport[]): Promise<void> {
    const rows = items.map((one) => [
      taskNumber(one.taskId),
      one.fence,
      jsonBytes(one.progress),
      jsonBytes(one.partial),
    ]);
    await this.call("stream_progress", { items: rows });
  }

  async beat(running: readonly string[], load: Record<string, number>): Promise<HeartbeatAnswer> {
    const payload = { running: running.map(taskNumber), load };
    const answer = await this.call("stream_beat", payload);
    return {
      health: answer["health"] as HeartbeatAnswer["health"],
      state: answer["state"] as HeartbeatAnswer["state"],
      cancel: taskIds(answer["cancel"]),
      lost: taskIds(answer["lost"]),
      heartbeat_interval_ms: Number(answer["heartbeat_interval_ms"]),
      lease_ms: Number(answer["lease_ms"]),
    };
  }

  private freeSlots(): number {
    return this.isLeasing ? Math.max(0, this.sink.freeSlots) : 0;
  }

  /** Send a message and wait for its answer. Without one in time the connection is cut. */
  private call(type: string, payload: Packed): Promise<Fields> {
    this.number += 1;
    const number = this.number;
    this.send(type, payload, number);
    return new Promise((resolve, reject) => {
      const timer = setTimeout(() => {
        this.calls.delete(number);
        reject(new Unavailable(`the coordinator did not answer ${type} within ${ANSWER_TIMEOUT_MS} ms`));
        this.socket.terminate();
      }, ANSWER_TIMEOUT_MS);
      this.calls.set(number, { resolve, reject, timer });
    });
  }

  private send(type: string, payload: Packed, number: number | null = null): void {
    const data = encode({ to: COORDINATOR, type, id: number, payload });
    if (data.length > this.maxFrameBytes) {
      const text = `a frame may have ${this.maxFrameBytes} bytes, not ${data.length}`;
      throw new RotaError("too_large", text);
    }
    if (this.socket.isLost) {
      throw new Unavailable("the stream to the coordinator is closed");
    }
    this.socket.send(data);
  }

  private fail(reason: string): void {
    const calls = [...this.calls.values()];
    this.calls.clear();
    for (const call of calls) {
      clearTimeout(call.timer);
      call.reject(new Unavailable(`the stream to the coordinator broke: ${reason}`));
    }
  }

  // --- receiving ---------------------------------------------------------------------------------

  private receive(data: Buffer): void {
    try {
      this.take(decode(data) as Fields);
    } catch (error) {
      // The next stream starts from what both sides know.
      this.events.onUnreadable(messageOf(error));
      this.socket.terminate();
    }
  }

  private take(envelope: Fields): void {
    const payload = (envelope["payload"] ?? {}) as Fields;
    if (typeof envelope["replyTo"] === "number") {
      this.takeAnswer(envelope["replyTo"], payload);
    } else if (envelope["type"] === "stream_leases") {
      this.takeLeases(payload["leases"] as Packed[][]);
    } else if (envelope["type"] === "stream_cancel") {
      this.events.onCancelled(taskIds(payload["task_ids"]));
    } else if (envelope["type"] === "stream_ended") {
      this.events.onRefused(this.session, refusal(payload));
    }
  }

  private takeLeases(rows: Packed[][]): void {
    if (!this.isLeasing) {
      return;
    }
    this.received += rows.length;
    this.expectedFree -= rows.length;
    if (!this.session.isOver) {
      this.sink.begin(rows.map(leaseView));
    }
  }

  private takeAnswer(number: number, payload: Fields): void {
    const call = this.calls.get(number);
    if (call === undefined) {
      return;
    }
    this.calls.delete(number);
    clearTimeout(call.timer);
    if (typeof payload["error"] === "string") {
      call.reject(refusal(payload));
    } else {
      call.resolve(payload);
    }
  }
}

// --- encoding and decoding -----------------------------------------------------------------------

function refusal(payload: Fields): RotaError {
  const text = String(payload["error"]);
  if (text === UNKNOWN_TYPE) {
    return new StreamRefused("the coordinator does not support streams");
  }
  const code = payload["code"];
  return errorNamed(typeof code === "string" ? code : undefined, text);
}

/** A task's number, of which its id is the sixteen hexadecimal digits. */
function taskNumber(taskId: string): bigint {
  return BigInt(`0x${taskId}`);
}

function taskId(number: Packed): string {
  return BigInt(number as number | bigint).toString(16).padStart(16, "0");
}

function taskIds(numbers: Packed): string[] {
  return ((numbers ?? []) as Packed[]).map(taskId);
}

function jsonBytes(text: string | undefined): Uint8Array | null {
  return text === undefined ? null : Buffer.from(text, "utf8");
}

/** Absent fields at the end of a row are left out. */
function resultRow(report: Report): Packed[] {
  const row: Packed[] = [taskNumber(report.task_id), report.fence];
  if (report.ok) {
    return report.result === undefined ? row : [...row, true, jsonBytes(report.result)];
  }
  const error = report.error === undefined ? null : { ...report.error, details: jsonValue(report.error.details) };
  return [
    ...row,
    false,
    null,
    error,
    report.retry_in_ms ?? null,
    report.snooze_ms ?? null,
    null,
    report.rate_limited ?? false,
  ];
}

/** The details of an error as JSON has them. */
function jsonValue(value: unknown): Packed {
  return value === undefined ? null : (JSON.parse(JSON.stringify(value)) as Packed);
}

function leaseView(row: Packed[]): LeaseView {
  const [id, fence, name, payload, attempt, most, queue, priority, createdAt, ...rest] = row;
  const [deadline, timeout, key, labels, run] = rest;
  return {
    task_id: taskId(id ?? null),
    fence: fence as number,
    name: name as string,
    payload: JSON.parse((payload as Buffer).toString("utf8")) as unknown,
    attempt: attempt as number,
    max_attempts: most as number,
    queue: queue as string,
    priority: priority as number,
    created_at_ms: createdAt as number,
    deadline_ms: (deadline ?? null) as number | null,
    timeout_ms: (timeout ?? null) as number | null,
    key: (key ?? null) as string | null,
    labels: (labels ?? null) as LeaseView["labels"],
    run_id: (run ?? null) as string | null,
  };
}
