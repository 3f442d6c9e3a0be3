/** Tasks as programs define them: a name, with the types of its payload and of its result. */
import type { NewTask } from "./api.js";

/** What a submission may say about a task, besides its name and its payload. */
export type TaskOptions = Omit<NewTask, "name" | "payload">;

declare const TYPES: unique symbol;

/**
 * A task that clients submit and workers run. `Payload` and `Result` are types of JSON values; they
 * exist only while compiling, and nothing checks values at run time.
 */
export interface TaskDefinition<Payload = unknown, Result = unknown> {
  readonly name: string;
  /** Options of every submission, unless the submission gives its own. */
  readonly options: TaskOptions;
  readonly [TYPES]?: { payload: Payload; result: Result };
}

/** Define a task once, for the program that submits it and for the worker that runs it. */
export function defineTask<Payload = unknown, Result = unknown>(
  name: string,
  options: TaskOptions = {},
): TaskDefinition<Payload, Result> {
  return { name, options };
}
