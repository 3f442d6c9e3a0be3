/** Client and worker for Rota, a durable work coordinator. */
export type * as api from "./api.js";
export type { ErrorCode, NewTask, Operations, RunView, TaskError, TaskView } from "./api.js";
export { Client, type CallRequest, type ClientOptions, type RunOptions } from "./client.js";
export {
  type AnyErrorCode,
  type ClientErrorCode,
  hasCode,
  RotaError,
  RunCancelled,
  RunFailed,
  TaskCancelled,
  TaskFailed,
  Unavailable,
  WaitTimeout,
} from "./errors.js";
export { RunHandle, type RunOf, type SignalOptions, TaskHandle, type TaskOf } from "./handles.js";
export { defineTask, type TaskDefinition, type TaskOptions } from "./tasks.js";
export type { CallOptions, WaitOptions } from "./waiting.js";
export { AttemptStopped, type Handler, type StopCause, type TaskContext } from "./worker/executor.js";
export type { LeaseTransport } from "./worker/leasing.js";
export type { LogFields, Logger } from "./worker/logging.js";
export { Discard, HandlerAnswer, RateLimited, Retry, Snooze } from "./worker/outcomes.js";
export { type StopReason, Worker, type WorkerOptions } from "./worker/worker.js";
