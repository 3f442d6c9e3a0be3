// Written by scripts/typescript.py from the OpenAPI document of the HTTP API. Do not edit: run
// `make docs`.

/** The stable codes of the errors that a coordinator answers with. */
export type ErrorCode =
  | "artifact_not_found"
  | "conflict"
  | "error"
  | "forbidden"
  | "head_too_large"
  | "illegal_state"
  | "internal"
  | "invalid"
  | "invalid_workflow"
  | "key_busy"
  | "key_not_found"
  | "limit_kind_conflict"
  | "limit_not_found"
  | "lock_lost"
  | "malformed"
  | "member_not_found"
  | "method_not_allowed"
  | "node_not_found"
  | "not_found"
  | "not_leader"
  | "nothing_to_approve"
  | "outcome_unknown"
  | "overloaded"
  | "push_not_found"
  | "queue_full"
  | "queue_not_found"
  | "request_timeout"
  | "result_conflict"
  | "run_not_found"
  | "schedule_not_found"
  | "scope_not_found"
  | "service_not_found"
  | "stale_epoch"
  | "stale_incarnation"
  | "stale_lease"
  | "store_full"
  | "target_too_long"
  | "task_not_found"
  | "token_not_found"
  | "too_large"
  | "too_many"
  | "unauthorized"
  | "unavailable"
  | "unique_conflict"
  | "unknown_command"
  | "version_conflict"
  | "webhook_not_found"
  | "worker_not_found"
  | "workflow_not_found";

/** Which failed tasks a bulk acknowledgement means. */
export interface AcknowledgedSelection {
  state?: TaskState | null;
  queue?: string | null;
  name?: string | null;
  label?: string | null;
  ids?: string[] | null;
  dry_run?: boolean;
  reason?: string;
  undo?: boolean;
}

/** Who has seen that a task failed, so that it asks for attention no more. */
export interface AcknowledgementView {
  at_ms: number;
  by: string;
  reason?: string;
}

/** An acknowledgement of failed tasks. */
export interface Acknowledging {
  reason?: string;
  undo?: boolean;
}

export interface Alive {
  status: string;
}

/** Wait for an approval or a rejection. */
export interface Approval {
  title?: string;
  timeout_ms?: number | null;
}

/**
 * Wait for a person. The result is the payload of the answer, as for approval nodes.
 *
 * The signal that answers it has the name of the operation: `ship` for the path `x/ship#1`.
 */
export interface ApprovalRequest {
  type: "approval";
  title?: string;
  form?: Record<string, unknown> | null;
  timeout_ms?: number | null;
}

export interface ArtifactPage {
  items: ArtifactView[];
  next_cursor?: string | null;
}

export interface ArtifactView {
  name: string;
  size: number;
  media_type: string;
  created_at_ms: number;
  task_id: string;
  committed_at_ms?: number | null;
}

/** Start the child run of an operation. */
export interface AskChild {
  type: "AskChild";
  number: number;
  resumes?: number | null;
}

/** Dispatch the task of a call, or tasks for some items of a map. */
export interface AskTasks {
  type: "AskTasks";
  number: number;
  first?: number;
  count?: number;
}

export interface AssignmentData {
  assignedShards: number[];
  shardEpochs?: number[];
  revoking?: number[];
  generation?: number;
  leaseTtlMs: number;
  heartbeatIntervalMs: number;
  protocol?: number;
  seq?: number | null;
  status?: "fenced" | "ok" | "reregister";
  reason?: string | null;
}

/** Lines that the handler of one leased task has logged since the last report. */
export interface AttemptLogItem {
  task_id: string;
  fence: number;
  lines?: LogLineItem[];
  first?: number;
  dropped?: number;
}

/** The log of one attempt: how much of it is kept, and how much is not. */
export interface AttemptLogView {
  attempt: number;
  fence: number;
  lines: number;
  dropped: number;
}

/** An attempt that did not finish its task. */
export interface AttemptView {
  attempt: number;
  fence: number;
  ending: string;
  worker_id?: string | null;
  started_at_ms?: number | null;
  ended_at_ms: number;
  next_state: string;
  error?: TaskError | null;
}

export interface BackfillCount {
  count: number;
}

export interface BacklogPage {
  items: BacklogView[];
  next_cursor?: string | null;
}

/** Live tasks with the same requirements, and why they wait. */
export interface BacklogView {
  queue: string;
  name: string;
  requires: string[];
  queued: number;
  scheduled: number;
  running: number;
  oldest_age_ms?: number | null;
  why: WhyView;
}

/** The wait between a failed attempt and the next. */
export interface Backoff {
  kind?: "exponential" | "linear" | "none";
  initial_ms?: number;
  max_ms?: number;
  jitter?: boolean | number;
}

export type BranchState = "arrived" | "cancelled" | "ended" | "failed" | "live" | "waiting";

/** A caller, or a task in one of its branches, adds branches to an open scope. */
export interface BranchesAdded {
  type: "BranchesAdded";
  at_ms: number;
  scope: number;
  items: unknown[];
  key?: string | null;
  is_last?: boolean;
  token?: number | null;
}

export interface BranchesRequest {
  items: unknown[];
  key?: string | null;
  last?: boolean;
}

/** Branches that were added to a scope. */
export interface BranchesView {
  run_id: string;
  scope: number;
  first_index: number;
  count: number;
  branch_total: number;
  duplicate?: boolean;
}

/** A task name that this worker gets no tasks of, because it kept failing them. */
export interface BreakerView {
  task: string;
  state: string;
  until_ms?: number | null;
}

/** Run a task on any worker that knows it. */
export interface CallRequest {
  type: "call";
  task: string;
  payload?: unknown;
  queue?: string;
  priority?: number;
  requires?: string[];
  timeout_ms?: number | null;
  max_attempts?: number;
  backoff?: Backoff | null;
  concurrency?: Concurrency[] | Concurrency | null;
  rate?: Rate[] | Rate | null;
  fair_key?: string | null;
}

export interface CancelChild {
  type: "CancelChild";
  number: number;
  mode?: "force" | "leave" | "undo";
}

export interface CancelTask {
  type: "CancelTask";
  number: number;
}

export interface Check {
  component: string;
  isHealthy: boolean;
  detail?: string | null;
}

export interface CheckpointRequest {
  epoch: number;
  value?: unknown;
}

export interface CheckpointView {
  service: string;
  shard: number;
  epoch: number;
  value?: unknown;
  saved_at_ms?: number | null;
}

/** A token's sub-workflow has ended. */
export interface ChildEnded {
  type: "ChildEnded";
  at_ms: number;
  token: number;
  ok: boolean;
  result?: unknown;
  error?: Record<string, unknown> | null;
  undo?: Compensation[];
  later?: boolean;
  traceparent?: string;
}

/** Start a child run, of a workflow in code or as data: `name` or `name@version`. */
export interface ChildRequest {
  type: "run";
  workflow: string;
  input?: unknown;
  timeout_ms?: number | null;
}

/** Close a scope whose join has fired, or whose branches have ended. */
export interface CloseScope {
  type: "CloseScope";
  number: number;
  because: string;
}

/** A workflow whose definition is a function. Equal fingerprints are the same version. */
export interface CodeDefinition {
  name: string;
  fingerprint: string;
  source: string;
  description?: string;
  language?: "python";
  module?: string;
  first_line?: number;
  label?: string | null;
  queue?: string;
  priority?: number;
  requires?: string[];
  max_attempts?: number;
  timeout_ms?: number | null;
  upgrade?: "pinned" | "replay";
  approvals?: string[];
}

export interface CodeScheduleItem {
  name: string;
  schedule: ScheduleSpec;
}

/** The task that undoes a completed node of a sub-workflow, as that one would dispatch it. */
export interface Compensation {
  node: string;
  task: string;
  result?: unknown;
  queue?: string;
  priority?: number;
  requires?: string[];
  timeout_ms?: number | null;
  max_attempts?: number;
  backoff?: Backoff | null;
}

/** A signal that fires a join with the branches that have arrived. */
export interface CompleteOn {
  signal: string;
}

/** At most so many tasks of one key run at once. */
export interface Concurrency {
  key: string;
  limit?: number;
  hold?: "attempt" | "task";
  on_full?: "cancel_queued" | "cancel_running" | "reject" | "wait";
}

/** Record why a transition was taken or not. Changes nothing. */
export interface Considered {
  type: "Considered";
  transition: string;
  taken: boolean;
  because: string;
}

export interface CountIteration {
  type: "CountIteration";
  transition: string;
  stack: [number, number][];
  count: number;
}

export interface CreateToken {
  type: "CreateToken";
  number: number;
  node: string;
  parent?: number | null;
  stack?: [number, number][];
  via?: string | null;
  compensates?: number | null;
}

/** Tasks with the same key that come in quick succession become one task, which starts late. */
export interface Debounce {
  key: string;
  wait_ms: number;
  max_wait_ms?: number | null;
  keep?: "first" | "last";
}

export interface Definition {
  name: string;
  description?: string;
  input?: Record<string, unknown> | boolean | null;
  state?: Record<string, unknown> | boolean | null;
  initial_node: string;
  nodes: Record<string, NodeDefinition>;
  transitions?: Transition[];
  output?: Record<string, unknown> | null;
  output_schema?: Record<string, unknown> | boolean | null;
  on_no_route?: "end" | "fail";
  timeout_ms?: number | null;
  max_depth?: number;
}

export interface DeliveryView {
  id: string;
  seq: number;
  type: string;
  subject: string;
  at_ms: number;
  state: "delivered" | "failed" | "waiting";
  attempts: number;
  last_at_ms?: number | null;
  next_at_ms?: number | null;
  code?: number | null;
  error?: string | null;
  took_ms?: number | null;
}

export interface DispatchTask {
  type: "DispatchTask";
  number: number;
  task: string;
  payload?: unknown;
  queue?: string;
  priority?: number;
  requires?: string[];
  timeout_ms?: number | null;
  max_attempts?: number;
  backoff?: Backoff | null;
  concurrency?: Concurrency[] | Concurrency | null;
  rate?: Rate[] | Rate | null;
  fair_key?: string | null;
  links?: string[];
}

/** A function that does not do what its log says. The run is paused with it as its error. */
export interface Divergence {
  message: string;
  path?: string | null;
  recorded?: string[];
  attempted?: string | null;
  recorded_line?: number | null;
  attempted_line?: number | null;
  version?: number | null;
}

/** Take operations out of the log: the function is to do them again. */
export interface DropOperations {
  type: "DropOperations";
  paths: string[];
  because: string;
}

export interface DropTimer {
  type: "DropTimer";
  kind: "join" | "run" | "sleep" | "slice" | "wait";
  number: number;
}

/** Note the end of an operation that the coordinator was asked for. */
export interface EndOperation {
  type: "EndOperation";
  number: number;
  state: "delivered" | "done" | "failed" | "pending" | "started";
}

/** The route of a failing node's token; `match` is CEL over `error`, absent: any error. */
export interface ErrorRoute {
  to: string;
  match?: string | null;
}

export interface EventPage {
  items: EventView[];
  next_cursor?: string | null;
  next_after: number;
  oldest_seq: number;
  last_seq: number;
}

/** Wait for a signal, which is the result; past its time the operation fails (`timeout`). */
export interface EventRequest {
  type: "event";
  name: string;
  timeout_ms?: number | null;
  is_answered?: boolean;
}

export interface EventView {
  seq: number;
  at_ms: number;
  type: string;
  subject: string;
  data?: Record<string, unknown>;
}

/** Add branches to an open scope. */
export interface ExtendScope {
  type: "ExtendScope";
  number: number;
  count: number;
  is_last?: boolean;
}

export interface FailureAcknowledging {
  reason?: string;
  undo?: boolean;
  dry_run?: boolean;
}

export interface FailurePage {
  items: FailureView[];
  looked_at: number;
  is_complete: boolean;
  next_cursor?: string | null;
}

/** Failed tasks with the same error. */
export interface FailureView {
  fingerprint: string;
  name: string;
  error: TaskError | null;
  count: number;
  queues: Record<string, number>;
  first_failed_at_ms: number;
  last_failed_at_ms: number;
  task_ids: string[];
}

export interface FiringView {
  nominal_ms: number;
  fired_at_ms: number;
  outcome: "dropped" | "fired" | "queued" | "refused" | "skipped_missed" | "skipped_overlap";
  task_id?: string | null;
  run_id?: string | null;
  manual?: boolean;
  count?: number;
  reason?: string | null;
}

export interface ForkRequest {
  from_node: string;
  state?: unknown;
}

/**
 * The result of the task that runs a function: new operations, and how it stopped.
 *
 * It stopped in one way: waiting, with an output, with an error, with a restart, or diverged.
 */
export interface FunctionReport {
  after?: number;
  operations?: Operation[];
  waits?: string[][] | null;
  output?: unknown;
  error?: Record<string, unknown> | null;
  restart?: unknown;
  divergence?: Divergence | null;
  version?: number | null;
}

/** The task of a function has ended with its report. */
export interface FunctionStopped {
  type: "FunctionStopped";
  at_ms: number;
  report: FunctionReport;
  traceparent?: string;
}

/** Where the function of a run is. */
export interface FunctionView {
  state: "dispatched" | "ended" | "executing" | "waiting";
  task_id?: string | null;
  waits_for?: string[];
  lines?: number[];
  operations: number;
  restarts: number;
  cancelled?: string | null;
}

/** The progress of a join, over all scopes that it has to join so far. */
export interface GraphJoin {
  arrived: number;
  needed: number;
  scopes: number;
  fired: number;
  cancelled?: number;
  failed?: number;
  open_scopes?: number[];
}

export interface GraphNode {
  id: string;
  kind: string;
  task?: string | null;
  workflow?: string | null;
  tokens: Record<string, number>;
  first_at_ms?: number | null;
  last_at_ms?: number | null;
  scopes?: string[];
  line?: number | null;
  signal?: string | null;
  held_back?: number;
  items?: MapItems | null;
}

export interface GraphTransition {
  id: string;
  from: string;
  to: string;
  taken: number;
  not_taken: number;
  tokens: Record<string, number>;
  join?: GraphJoin | null;
}

export type Health = "degraded" | "healthy" | "unhealthy";

export interface HealthAnswer {
  status: "healthy" | "unhealthy";
  checks: Check[];
  components: Check[];
  uptime: number;
  timestamp: number;
  version: string;
  warnings?: string[];
}

export interface HeartbeatAnswer {
  health: Health;
  state: WorkerState;
  cancel?: string[];
  lost?: string[];
  heartbeat_interval_ms: number;
  lease_ms: number;
}

export interface HeartbeatRequest {
  incarnation: number;
  running?: string[] | null;
  load?: Record<string, number> | null;
}

export interface JobAnswer {
  success: boolean;
  job: JobView;
}

export interface JobEvent {
  event_type: string;
  from_state: string | null;
  to_state: string;
  created_at_ms: number;
}

export interface JobFailure {
  error?: string | TaskError;
}

export interface JobRefusal {
  success?: false;
  error: string;
  code: string;
}

export interface JobStart {
  worker_id?: string | null;
}

export interface JobView {
  id: string;
  name: string;
  state: TaskState;
  queue: string;
  priority: number;
  payload: unknown;
  requires: string[];
  attempt: number;
  max_attempts: number;
  worker_id?: string | null;
  result?: unknown;
  error?: TaskError | null;
  progress?: unknown;
  partial?: unknown;
  position?: number | null;
  delay_ms?: number | null;
  run_at_ms?: number | null;
  timeout_ms?: number | null;
  start_within_ms?: number | null;
  backoff?: Backoff | null;
  key?: string | null;
  labels?: Record<string, string> | string[] | null;
  concurrency?: Concurrency[] | Concurrency | null;
  rate?: Rate[] | Rate | null;
  fair_key?: string | null;
  on_expiry?: "discard" | "fail";
  unique?: Unique | null;
  debounce?: Debounce | null;
  headers?: Record<string, string> | null;
  created_at_ms: number;
  started_at_ms?: number | null;
  finished_at_ms?: number | null;
  acknowledged?: AcknowledgementView | null;
  run_id?: string | null;
  token_id?: string | null;
  duplicate?: boolean;
  fence: number;
  events?: JobEvent[];
}

/** An event of a run, and what was decided on it. */
export interface JournalEntryView {
  number: number;
  at_ms: number;
  event: RunStarted | TaskEnded | ChildEnded | Signalled | SignalSent | TimerFired | RunCancelRequested | RunPaused | RunResumed | RunRetried | ScopeEndRequested | BranchesAdded | OperationsReported | FunctionStopped;
  decisions: (CreateToken | SetTokenState | DispatchTask | CancelTask | StartChild | CancelChild | PauseChild | ResumeChild | OpenScope | ExtendScope | SetBranchState | CloseScope | WriteContext | SetTimer | DropTimer | KeepSignal | TakeSignal | SendSignal | CountIteration | SetRunState | Considered | ResumeFunction | AskTasks | AskChild | EndOperation | DropOperations | RestartFunction | WarnOperations)[];
  decision_count: number;
  links?: Record<string, string>;
  text?: string;
  token_names?: Record<string, string>;
  scope_names?: Record<string, string>;
}

export interface JournalPage {
  items: JournalEntryView[];
  next_cursor?: string | null;
}

export interface KeepSignal {
  type: "KeepSignal";
  name: string;
  payload?: unknown;
}

export interface KeyLimitDeleted {
  key: string;
  limit?: KeyLimitView | null;
}

export interface KeyLimitPage {
  items: KeyLimitView[];
  next_cursor?: string | null;
}

/** A limit that an operator sets; other fields stay unchanged. */
export interface KeyLimitPut {
  limit?: number | null;
  per_ms?: number | null;
  burst?: number | null;
  mode?: "smooth" | "window" | null;
  pinned?: boolean;
}

/** A limit as clients see it. */
export interface KeyLimitView {
  key: string;
  kind: "concurrency" | "rate";
  limit: number;
  running: number;
  waiting: number;
  per_ms?: number | null;
  burst?: number | null;
  mode?: "smooth" | "window" | null;
  opens_at_ms?: number | null;
  pinned: boolean;
}

/** The coordinator that executes the commands of all coordinators on this store. */
export interface LeaderView {
  name: string;
  address: string;
  epoch: number;
  since_ms: number;
  is_here: boolean;
}

export interface LeaseAnswer {
  leases: LeaseView[];
}

export interface LeaseRequest {
  incarnation: number;
  max?: number;
  wait_ms?: number;
  running?: string[] | null;
}

export interface LeaseView {
  task_id: string;
  fence: number;
  name: string;
  payload: unknown;
  attempt: number;
  max_attempts: number;
  deadline_ms?: number | null;
  timeout_ms?: number | null;
  queue?: string;
  priority?: number;
  key?: string | null;
  labels?: Record<string, string> | string[] | null;
  created_at_ms?: number;
  run_id?: string | null;
  headers?: Record<string, string> | null;
}

export interface LimitConsume {
  cost?: number;
}

export interface LimitConsumed {
  key: string;
  consumed: boolean;
  opens_at_ms?: number | null;
}

/** What limits count, compared with leases and queued tasks. */
export interface LimitRecountView {
  limits: number;
  slots: number;
  flows: number;
  differences: string[];
}

export interface LimitView {
  name: string;
  value: number;
}

export interface LockAcquire {
  owner: string;
  ttl_ms?: number;
  wait_ms?: number;
}

export interface LockPage {
  items: LockView[];
  next_cursor?: string | null;
}

export interface LockRelease {
  owner: string;
  fence: number;
}

export interface LockRenew {
  owner: string;
  fence: number;
  ttl_ms?: number | null;
}

export interface LockView {
  name: string;
  acquired: boolean;
  fence?: number | null;
  holder?: string | null;
  expires_at_ms?: number | null;
  position?: number | null;
  waiting?: number | null;
}

/** One line that a handler has logged. */
export interface LogLineItem {
  at_ms: number;
  level?: "critical" | "debug" | "error" | "info" | "warning";
  logger?: string;
  message: string;
  fields?: unknown;
}

/** One line of the log of a task. */
export interface LogLineView {
  number: number;
  attempt: number;
  fence: number;
  at_ms: number;
  level: "critical" | "debug" | "error" | "info" | "warning";
  logger: string;
  message: string;
  fields?: unknown;
}

export interface LogPage {
  items: LogLineView[];
  attempts: AttemptLogView[];
  next_after: number;
  has_more: boolean;
  state: TaskState;
}

/** The object form of a call with log lines; a bare array of items is accepted as well. */
export interface LogReport {
  items: AttemptLogItem[];
  incarnation?: number | null;
}

export interface LoggedOut {
  logged_out?: boolean;
}

export interface LoginRequest {
  token: string;
}

/** The items of all maps of one name, by how far they are. */
export interface MapItems {
  total: number;
  ended: number;
  running: number;
  queued: number;
  held_back: number;
  cancelled?: number;
}

/** Run a task for each payload. The operation ends once, with the list of all results. */
export interface MapRequest {
  type: "map";
  call: CallRequest;
  payloads: unknown[];
  max_parallel?: number | null;
  on_failure?: "collect" | "fail";
}

/** The caller, and what it may do. */
export interface Me {
  name: string;
  scopes: string[];
  actions: string[];
  queues?: string[] | null;
  services?: string[] | null;
  is_token: boolean;
}

export interface MemberDrain {
  draining?: boolean;
}

/** A heartbeat over HTTP; the path names the service and the worker. */
export interface MemberHeartbeat {
  maxShardCount: number;
  assignedShards: number[];
  protocol?: number;
  incarnation?: number | string | null;
  generation?: number | null;
  seq?: number | null;
  draining?: boolean;
}

export interface MemberLeft {
  service: string;
  worker_id: string;
}

/** A register over HTTP; the path names the service. */
export interface MemberRegistration {
  workerId: string;
  maxShardCount: number;
  protocol?: number;
  incarnation?: number | string | null;
  weight?: number;
  maxShards?: number | null;
  seq?: number | null;
}

export interface MemberView {
  worker_id: string;
  shards: number[];
  epochs: number[];
  target: number[];
  weight: number;
  draining: boolean;
  health: Health;
  protocol: number;
  last_heartbeat_ms: number;
  max_shards?: number | null;
  fenced?: string | null;
}

export interface MemoryDeleted {
  key: string;
  version: number;
}

export interface MemoryPage {
  items: MemoryView[];
  next_cursor?: string | null;
}

export interface MemoryPut {
  value: unknown;
  ttl_ms?: number | null;
  if_version?: number | null;
}

export interface MemoryView {
  key: string;
  value: unknown;
  version: number;
  updated_at_ms: number;
  expires_at_ms?: number | null;
}

/** A part of each branch that a join writes, and where it writes it. */
export interface Merge {
  source?: string;
  target: string;
  strategy?: "append" | "collect" | "keyed" | "last_wins" | "merge";
  key?: string | null;
}

/** A task as its submitter describes it. */
export interface NewTask {
  name: string;
  payload?: unknown;
  queue?: string;
  priority?: number;
  requires?: string[];
  delay_ms?: number | null;
  run_at_ms?: number | null;
  timeout_ms?: number | null;
  start_within_ms?: number | null;
  on_expiry?: "discard" | "fail";
  max_attempts?: number;
  backoff?: Backoff | null;
  key?: string | null;
  labels?: Record<string, string> | string[] | null;
  concurrency?: Concurrency[] | Concurrency | null;
  rate?: Rate[] | Rate | null;
  fair_key?: string | null;
  unique?: Unique | null;
  debounce?: Debounce | null;
  headers?: Record<string, string> | null;
}

export interface NewTokenAnswer {
  id: string;
  name: string;
  scopes: string[];
  queues?: string[] | null;
  services?: string[] | null;
  worker_id?: string | null;
  created_at_ms: number;
  expires_at_ms?: number | null;
  token: string;
}

/** An empty body: an empty object, null, or no body. */
export interface NoFields {
}

/** A step of a workflow, of the kind that one of its first fields makes it. */
export interface NodeDefinition {
  task?: string | null;
  workflow?: string | null;
  wait_for?: WaitFor | null;
  approval?: boolean | Approval | null;
  signal?: OutgoingSignal | null;
  sleep_ms?: number | null;
  end?: "cancelled" | "completed" | "failed" | null;
  input?: Record<string, unknown> | null;
  output?: Record<string, unknown> | null;
  output_schema?: Record<string, unknown> | boolean | null;
  requires?: string[];
  queue?: string;
  priority?: number;
  retry?: RetryPolicy | null;
  timeout_ms?: number | null;
  on_error?: ErrorRoute[];
  compensate?: string | null;
  concurrency?: Concurrency[] | Concurrency | null;
  rate?: Rate[] | Rate | null;
  fair_key?: string | null;
}

export interface OpenScope {
  type: "OpenScope";
  number: number;
  key: string;
  node: string;
  parent: number;
  total: number;
  stack?: [number, number][];
  max_parallel?: number | null;
  needed?: Record<string, number> | null;
  open?: "until_closed" | "until_done" | null;
}

/** One entry of the log of a function. */
export interface Operation {
  path: string;
  kind: "approval" | "call" | "choice" | "event" | "map" | "marker" | "once" | "publish" | "receive" | "reply" | "run" | "sleep" | "step" | "stream";
  state: "delivered" | "done" | "failed" | "pending" | "started";
  request?: CallRequest | MapRequest | ChildRequest | SleepRequest | EventRequest | ApprovalRequest | null;
  result?: unknown;
  error?: Record<string, unknown> | null;
  arguments?: string | null;
  attempts?: number;
  started_at_ms?: number | null;
  ended_at_ms?: number | null;
  line?: number | null;
  can_undo?: boolean;
}

/** Entries of the log of a function, in their order. */
export interface OperationPage {
  items: Operation[];
  next_after?: number | null;
  reported: number;
  restarts: number;
}

export interface OperationsAnswer {
  outcomes: OperationsOutcome[];
}

/** What the function of one leased task has done since its last report. */
export interface OperationsItem {
  task_id: string;
  fence: number;
  after: number;
  operations: unknown;
}

export interface OperationsOutcome {
  task_id: string;
  outcome: "accepted" | "duplicate" | "stale" | "stale_epoch" | "unknown";
  cancelled?: string | null;
}

export interface OperationsReport {
  incarnation: number;
  items: OperationsItem[];
}

/** A function has reported what it did, and goes on. */
export interface OperationsReported {
  type: "OperationsReported";
  at_ms: number;
  operations: Operation[];
}

/** A signal that a node sends. `run` is CEL, absent: its own run. */
export interface OutgoingSignal {
  run?: string | null;
  name: string;
  payload?: unknown;
}

export interface Overview {
  now_ms: number;
  version: string;
  tasks: Record<string, number>;
  runs: Record<string, number>;
  workers: Record<string, number>;
  queues: number;
  paused_queues: string[];
  stuck: number;
  waits?: Record<string, number>;
  unacknowledged?: number;
  shards: ShardCounts;
  leader?: LeaderView | null;
}

export interface PauseChild {
  type: "PauseChild";
  number: number;
}

/** `application/problem+json`; the facts of an error are additional fields. */
export interface Problem {
  code: string;
  title: string;
  status: number;
  detail: string;
  [fact: string]: unknown;
}

export interface ProgressItem {
  task_id: string;
  fence: number;
  progress?: unknown;
  partial?: unknown;
}

/** The object form of a progress call; a bare array of items is accepted as well. */
export interface ProgressReport {
  items: ProgressItem[];
  incarnation?: number | null;
}

/** Where the tasks of a queue are pushed to; what is left out has its default. */
export interface PushPut {
  url: string;
  timeout_ms?: number;
  concurrency?: number;
  headers?: Record<string, string> | null;
  secret?: string | null;
}

export interface PushView {
  queue: string;
  url: string;
  timeout_ms: number;
  concurrency: number;
  headers: string[];
  worker_id: string;
  closed_until_ms?: number | null;
  changed_at_ms: number;
  secret?: string | null;
}

export interface QueuePage {
  items: QueueView[];
  next_cursor?: string | null;
}

/** Changed settings of a queue; what is not given stays, null resets. */
export interface QueuePatch {
  max_running?: number | null;
  max_queued?: number | null;
  rate?: QueueRate | null;
  weights?: Record<string, number> | null;
  fairness?: "tasks" | "time" | null;
  aging_ms?: number | null;
  target_wait_ms?: number | null;
  paused?: boolean;
}

/** At most so many starts of a queue's tasks in a period. */
export interface QueueRate {
  limit: number;
  per_ms?: number;
  burst?: number;
  mode?: "smooth" | "window";
}

export interface QueueView {
  name: string;
  paused: boolean;
  depth: number;
  scheduled: number;
  running: number;
  oldest_age_ms?: number | null;
  submitted_per_s?: number;
  finished_per_s?: number;
  failed_per_s?: number;
  max_running?: number | null;
  max_queued?: number | null;
  rate?: QueueRate | null;
  weights?: Record<string, number>;
  fairness?: "tasks" | "time";
  aging_ms?: number | null;
  target_wait_ms?: number | null;
  target_missed_ms?: number | null;
  is_pushed?: boolean;
}

/** A number of branches; as CEL, it is evaluated where the scope opens. */
export interface Quorum {
  m_of_n: number | string;
}

/** At most so many starts of one key in a period, first attempts and retries alike. */
export interface Rate {
  key: string;
  limit: number;
  per_ms?: number;
  burst?: number | null;
  cost?: number;
  mode?: "smooth" | "window";
}

export interface Redrive {
  dry_run?: boolean;
}

/** A coordinator on this store; times are those of the store. */
export interface ReplicaView {
  name: string;
  url: string | null;
  host: string;
  version: string;
  started_at_ms: number;
  seen_ms: number;
  is_away: boolean;
  is_here: boolean;
  role?: Role | null;
}

/** Begin a new log, with a new input. */
export interface RestartFunction {
  type: "RestartFunction";
  restarts: number;
}

export interface ResultAnswer {
  outcomes: ResultOutcome[];
}

/** The outcome of one leased task: a result, an error, or a snooze. */
export interface ResultItem {
  task_id: string;
  fence: number;
  ok?: boolean | null;
  result?: unknown;
  error?: string | TaskError | null;
  retry_in_ms?: number | null;
  snooze_ms?: number | null;
  rate_limited?: boolean;
  shard?: ShardClaim | null;
  traceparent?: string | null;
}

export interface ResultOutcome {
  task_id: string;
  outcome: "accepted" | "duplicate" | "stale" | "stale_epoch" | "unknown";
}

export interface ResultReport {
  incarnation: number;
  results: ResultItem[];
}

export interface ResumeChild {
  type: "ResumeChild";
  number: number;
}

/** Dispatch a task that runs the function, with everything that happened so far. */
export interface ResumeFunction {
  type: "ResumeFunction";
  reported: number;
  links?: string[];
}

export interface RetryPolicy {
  max_attempts?: number;
  backoff?: Backoff | null;
}

export type Role = "follower" | "leader" | "seeking";

/** The live tasks of a run. */
export interface RunActivity {
  run_id: string;
  tasks: TasksAlike[];
  text?: string | null;
  until_ms?: number | null;
}

export interface RunActivityPage {
  items: RunActivity[];
  next_cursor?: string | null;
}

export interface RunCancelRequested {
  type: "RunCancelled";
  at_ms: number;
  reason?: string;
  mode?: "force" | "leave" | "undo" | null;
}

export interface RunCancellation {
  reason?: string;
  force?: boolean;
}

export interface RunContext {
  input: unknown;
  state: unknown;
  output: unknown;
}

export interface RunGraph {
  run_id: string;
  workflow: string;
  version: number;
  state: RunState;
  number: number;
  at_ms?: number | null;
  last_number: number;
  initial_node: string;
  nodes: GraphNode[];
  transitions: GraphTransition[];
  function?: FunctionView | null;
}

export interface RunPage {
  items: RunView[];
  next_cursor?: string | null;
}

export interface RunPaused {
  type: "RunPaused";
  at_ms: number;
  children?: boolean;
}

export interface RunRequest {
  workflow: string;
  version?: number | null;
  input?: unknown;
  key?: string | null;
  timeout_ms?: number | null;
  headers?: Record<string, string> | null;
}

export interface RunResumed {
  type: "RunResumed";
  at_ms: number;
  children?: boolean;
  accept?: boolean;
}

export interface RunResumption {
  accept?: boolean;
}

/** A caller retries a failed run from where it failed. */
export interface RunRetried {
  type: "RunRetried";
  at_ms: number;
  children?: boolean;
  with_parent?: boolean;
}

export interface RunStarted {
  type: "RunStarted";
  at_ms: number;
  input?: unknown;
  from_node?: string | null;
  state?: unknown;
  nodes?: unknown;
  timeout_ms?: number | null;
  rules?: number;
  slice_steps?: number | null;
  run_id?: string | null;
  parent_id?: string | null;
  log?: Operation[];
  headers?: Record<string, string>;
}

export type RunState = "cancelled" | "completed" | "failed" | "paused" | "running" | "timed_out";

/** Values of a stream of a function, in their order. */
export interface RunStreamPage {
  items: unknown[];
  next_after: number;
  ended: boolean;
}

export interface RunTokenPage {
  items: RunTokenView[];
  next_cursor?: string | null;
}

/** A token: a place where a run is, or was. */
export interface RunTokenView {
  id: string;
  node_id: string;
  state: TokenState;
  parent_token_id?: string | null;
  path_id: string;
  fan_out_transition_id?: string | null;
  branch_index?: number | null;
  branch_total?: number | null;
  scope?: number | null;
  task_id?: string | null;
  child_run_id?: string | null;
  compensates_token_id?: string | null;
  created_at_ms: number;
  started_at_ms?: number | null;
  finished_at_ms?: number | null;
  worker_id?: string | null;
  attempts?: TokenAttempt[];
  error?: Record<string, unknown> | null;
  path?: string | null;
  kind?: string | null;
  line?: number | null;
  signal?: string | null;
  title?: string | null;
  form?: Record<string, unknown> | null;
  due_at_ms?: number | null;
  items?: number | null;
  items_ended?: number | null;
}

/** A run as clients see it. */
export interface RunView {
  id: string;
  workflow: string;
  version: number;
  state: RunState;
  context?: RunContext | null;
  output?: unknown;
  error?: Record<string, unknown> | null;
  created_at_ms: number;
  started_at_ms: number;
  finished_at_ms?: number | null;
  parent_run_id?: string | null;
  parent_token_id?: string | null;
  parent_workflow?: string | null;
  key?: string | null;
  forked_from?: string | null;
  timeout_ms?: number | null;
  duplicate?: boolean;
}

export interface ScalePage {
  items: ScaleView[];
  depth: number;
  running: number;
  wanted_capacity: number;
  wanted_workers: number;
  next_cursor?: string | null;
}

/** The demand of one queue and capability set. */
export interface ScaleView {
  queue: string;
  requires: string[];
  paused: boolean;
  depth: number;
  oldest_age_ms?: number | null;
  running: number;
  submitted_per_s: number;
  finished_per_s: number;
  duration_ms?: number | null;
  workers: number;
  capacity: number;
  available_capacity: number;
  utilisation?: number | null;
  drain_ms?: number | null;
  wanted_capacity: number;
  wanted_workers: number;
  decided_by: Term;
  explanation: string;
}

export interface ScheduleBackfill {
  from_ms: number;
  to_ms: number;
  overlap?: "allow" | "cancel_running" | "queue_all" | "queue_one" | "skip" | null;
  dry_run?: boolean;
}

export interface SchedulePage {
  items: ScheduleView[];
  next_cursor?: string | null;
}

export interface SchedulePauseRequest {
  note?: string;
}

export interface SchedulePut {
  cron?: string | string[] | null;
  every_ms?: number | null;
  offset_ms?: number;
  at_ms?: number[];
  timezone?: string;
  exclude?: string[];
  starts_at_ms?: number | null;
  ends_at_ms?: number | null;
  max_firings?: number | null;
  task?: NewTask | null;
  run?: ScheduledRun | null;
  missed?: "all" | "last" | "skip";
  catch_up_ms?: number;
  overlap?: "allow" | "cancel_running" | "queue_all" | "queue_one" | "skip";
  jitter_ms?: number;
  pause_on_failure?: number | null;
  with_times?: boolean;
  paused?: boolean | null;
  pinned?: boolean | null;
}

/** A schedule as its author describes it. Its times are those of all rules together. */
export interface ScheduleSpec {
  cron?: string | string[] | null;
  every_ms?: number | null;
  offset_ms?: number;
  at_ms?: number[];
  timezone?: string;
  exclude?: string[];
  starts_at_ms?: number | null;
  ends_at_ms?: number | null;
  max_firings?: number | null;
  task?: NewTask | null;
  run?: ScheduledRun | null;
  missed?: "all" | "last" | "skip";
  catch_up_ms?: number;
  overlap?: "allow" | "cancel_running" | "queue_all" | "queue_one" | "skip";
  jitter_ms?: number;
  pause_on_failure?: number | null;
  with_times?: boolean;
}

export interface ScheduleSync {
  source: string;
  items: CodeScheduleItem[];
}

export interface ScheduleSyncView {
  changed: string[];
  unchanged: string[];
  pinned: string[];
  orphaned: string[];
}

export interface ScheduleTimes {
  items: number[];
}

export interface ScheduleView {
  name: string;
  cron?: string | string[] | null;
  every_ms?: number | null;
  offset_ms?: number | null;
  at_ms?: number[];
  timezone: string;
  exclude?: string[];
  starts_at_ms?: number | null;
  ends_at_ms?: number | null;
  max_firings?: number | null;
  task?: unknown;
  run?: unknown;
  missed: "all" | "last" | "skip";
  catch_up_ms: number;
  overlap: "allow" | "cancel_running" | "queue_all" | "queue_one" | "skip";
  jitter_ms: number;
  pause_on_failure?: number | null;
  with_times: boolean;
  paused: boolean;
  paused_at_ms?: number | null;
  paused_by?: string | null;
  note?: string | null;
  next_at_ms?: number | null;
  next_nominal_ms?: number | null;
  last_fired_at_ms?: number | null;
  previous_success_ms?: number | null;
  fired: number;
  failures: number;
  waiting: number;
  firings: FiringView[];
  source?: string | null;
  pinned: boolean;
  orphaned: boolean;
  created_at_ms: number;
  updated_at_ms: number;
}

/** The run that a schedule starts. */
export interface ScheduledRun {
  workflow: string;
  version?: number | null;
  input?: unknown;
  timeout_ms?: number | null;
}

/** A caller completes or cancels a scope. */
export interface ScopeEndRequested {
  type: "ScopeEndRequested";
  at_ms: number;
  scope: number;
  action: "cancel" | "complete";
  reason?: string;
}

export interface ScopeEnding {
  reason?: string;
}

/** A join of a scope, and how far it is. */
export interface ScopeJoin {
  node_id: string;
  arrived: number;
  needed?: number | null;
  complete_on?: string | null;
}

export interface ScopePage {
  items: ScopeView[];
  next_cursor?: string | null;
}

/** A scope: the branches of one fan-out, until they are joined. */
export interface ScopeView {
  number: number;
  fan_out_transition_id: string;
  node_id: string;
  parent_token_id: string;
  is_open: boolean;
  takes_branches?: boolean;
  branch_total: number;
  branches: Record<string, number>;
  joins?: ScopeJoin[];
  opened_at_ms: number;
  closed_at_ms?: number | null;
  because?: string | null;
}

/** The parts of a worker's score; each in 0..1, weighted into `priority`. */
export interface ScoreView {
  capacity: number;
  success: number;
  speed: number;
  slow_start: number;
}

export interface SendSignal {
  type: "SendSignal";
  number: number;
  name: string;
  run?: string | null;
  payload?: unknown;
}

export interface SeriesPage {
  items: SeriesView[];
  start_ms: number;
  slot_ms: number;
  next_cursor?: string | null;
}

/** One value per slot, oldest first; null: no measurement. */
export interface SeriesView {
  queue: string | null;
  submitted: (number | null)[];
  finished: (number | null)[];
  failed: (number | null)[];
  depth: (number | null)[];
  running: (number | null)[];
  oldest_age_ms: (number | null)[];
}

/** A change of a service; fields that are left out stay as they are. */
export interface ServiceChange {
  shard_count?: number | null;
  pinned?: boolean | null;
  min_protocol?: number | null;
}

export interface ServicePage {
  items: ServiceSummary[];
  next_cursor?: string | null;
}

export interface ServiceSummary {
  name: string;
  shard_count: number;
  pinned: boolean;
  min_protocol: number;
  generation: number;
  member_count: number;
  unowned: number;
  moving: number;
}

export interface ServiceView {
  name: string;
  shard_count: number;
  pinned: boolean;
  min_protocol: number;
  generation: number;
  member_count: number;
  unowned: number;
  moving: number;
  members: MemberView[];
}

export interface SetBranchState {
  type: "SetBranchState";
  scope: number;
  index: number;
  state: BranchState;
  join?: string | null;
}

export interface SetRunState {
  type: "SetRunState";
  state: RunState;
  output?: unknown;
  error?: Record<string, unknown> | null;
}

export interface SetTimer {
  type: "SetTimer";
  kind: "join" | "run" | "sleep" | "slice" | "wait";
  number: number;
  due_at_ms: number;
}

export interface SetTokenState {
  type: "SetTokenState";
  number: number;
  state: TokenState;
  error?: Record<string, unknown> | null;
}

export interface SettingView {
  name: string;
  value: unknown;
  is_default: boolean;
  description?: string;
}

/** The shard and epoch of an effect, which is refused when the shard has moved since. */
export interface ShardClaim {
  service: string;
  shard: number;
  epoch: number;
}

/** Of all services together, as of the last sweep. */
export interface ShardCounts {
  services?: number;
  shards?: number;
  owned?: number;
  unowned?: number;
  moving?: number;
}

export interface SiblingsRequest {
  items: unknown[];
  key?: string | null;
  last?: boolean;
  fence: number;
  fan_out?: string | null;
}

/** The reply of a function to a signal. */
export interface SignalReply {
  ready: boolean;
  value?: unknown;
  ended: boolean;
}

export interface SignalRequest {
  name: string;
  payload?: unknown;
  key?: string | null;
  token_id?: string | null;
}

/** The signal of a token was delivered, or refused. */
export interface SignalSent {
  type: "SignalSent";
  at_ms: number;
  token: number;
  error?: Record<string, unknown> | null;
  later?: boolean;
}

export interface Signalled {
  type: "Signalled";
  at_ms: number;
  name: string;
  payload?: unknown;
  key?: string | null;
  token?: number | null;
  sender?: string | null;
  later?: boolean;
}

export interface SleepRequest {
  type: "sleep";
  due_at_ms: number;
}

export interface StartChild {
  type: "StartChild";
  number: number;
  workflow: string;
  input?: unknown;
  timeout_ms?: number | null;
  resumes?: number | null;
}

export interface StoreView {
  kind: string;
  place: string;
  size_bytes?: number | null;
  disk_free_bytes?: number | null;
  is_disk_low?: boolean;
  is_full?: boolean;
}

/** A join: waits for branches of one scope, and continues as one token. */
export interface Synchronization {
  wait_for?: "all" | "any" | Quorum;
  joins_transition: string;
  merge?: Merge[] | Merge;
  timeout_ms?: number | null;
  on_timeout?: "fail" | "proceed";
  late?: "absorb" | "cancel";
  on_branch_failure?: "continue" | "fail";
  complete_on?: CompleteOn | null;
}

export interface SystemView {
  version: string;
  python: string;
  platform: string;
  started_at_ms: number;
  now_ms: number;
  store: StoreView;
  figures: Record<string, number>;
  settings: SettingView[];
  limits: LimitView[];
  replicas: ReplicaView[];
  role?: Role;
  leader?: LeaderView | null;
  warnings?: string[];
}

export interface TakeSignal {
  type: "TakeSignal";
  name: string;
}

export interface TaskCount {
  count: number;
  dry_run?: boolean;
}

/** A token's task has finished. */
export interface TaskEnded {
  type: "TaskEnded";
  at_ms: number;
  token: number;
  ok: boolean;
  result?: unknown;
  error?: Record<string, unknown> | null;
  cancelled?: boolean;
  traceparent?: string;
}

/** The error of the handler, unchanged. Never replaced by a protocol's error. */
export interface TaskError {
  type?: string;
  message?: string;
  retryable?: boolean;
  details?: unknown;
}

export interface TaskPage {
  items: TaskView[];
  next_cursor?: string | null;
}

/** Which tasks a bulk cancel or retry means. */
export interface TaskSelection {
  state?: TaskState | null;
  queue?: string | null;
  name?: string | null;
  label?: string | null;
  ids?: string[] | null;
  dry_run?: boolean;
}

export type TaskState = "cancelled" | "failed" | "queued" | "running" | "scheduled" | "succeeded";

export interface TaskTimeline {
  id: string;
  state: string;
  events: JobEvent[];
  attempts: AttemptView[];
  why: WhyView;
  fence: number;
  deadline_ms?: number | null;
}

/** A task as clients see it. */
export interface TaskView {
  id: string;
  name: string;
  state: TaskState;
  queue: string;
  priority: number;
  payload: unknown;
  requires: string[];
  attempt: number;
  max_attempts: number;
  worker_id?: string | null;
  result?: unknown;
  error?: TaskError | null;
  progress?: unknown;
  partial?: unknown;
  position?: number | null;
  delay_ms?: number | null;
  run_at_ms?: number | null;
  timeout_ms?: number | null;
  start_within_ms?: number | null;
  backoff?: Backoff | null;
  key?: string | null;
  labels?: Record<string, string> | string[] | null;
  concurrency?: Concurrency[] | Concurrency | null;
  rate?: Rate[] | Rate | null;
  fair_key?: string | null;
  on_expiry?: "discard" | "fail";
  unique?: Unique | null;
  debounce?: Debounce | null;
  headers?: Record<string, string> | null;
  created_at_ms: number;
  started_at_ms?: number | null;
  finished_at_ms?: number | null;
  acknowledged?: AcknowledgementView | null;
  run_id?: string | null;
  token_id?: string | null;
  duplicate?: boolean;
}

/** Live tasks of a run with the same name and state. */
export interface TasksAlike {
  name: string;
  queue: string;
  state: TaskState;
  count: number;
}

export interface TenantPage {
  items: TenantView[];
  total: number;
}

/** A tenant of a queue: the tasks that have the same `fair_key`. */
export interface TenantView {
  key: string;
  weight: number;
  waiting: number;
  running: number;
  share?: number | null;
}

/** The term that decided the wanted number. */
export type Term = "arrivals" | "backlog" | "idle" | "paused" | "running" | "unmeasured";

export interface TimerFired {
  type: "TimerFired";
  at_ms: number;
  kind: "join" | "run" | "sleep" | "slice" | "wait";
  number: number;
}

/** An attempt of a token's task that did not finish it. */
export interface TokenAttempt {
  started_at_ms?: number | null;
  ended_at_ms: number;
  ending: string;
}

export interface TokenPage {
  items: TokenView[];
  next_cursor?: string | null;
}

export interface TokenRequest {
  scopes: ("admin" | "read" | "submit" | "worker")[];
  name?: string;
  queues?: string[] | null;
  services?: string[] | null;
  worker_id?: string | null;
  expires_in_ms?: number | null;
}

export interface TokenRevoked {
  id: string;
}

export type TokenState =
  | "cancelled"
  | "completed"
  | "dispatched"
  | "executing"
  | "failed"
  | "pending"
  | "timed_out"
  | "waiting_for_event"
  | "waiting_for_siblings"
  | "waiting_for_subworkflow";

export interface TokenView {
  id: string;
  name: string;
  scopes: string[];
  queues?: string[] | null;
  services?: string[] | null;
  worker_id?: string | null;
  created_at_ms: number;
  expires_at_ms?: number | null;
}

export interface Transition {
  from: string;
  to: string;
  id?: string | null;
  priority?: number;
  condition?: string | null;
  spawn_count?: number | string | null;
  foreach?: string | null;
  sibling_group?: string | null;
  max_parallel?: number | null;
  open?: "until_closed" | "until_done" | null;
  synchronization?: Synchronization | null;
  max_iterations?: number | null;
}

/** No second task with the same key is accepted in the queue while this one holds it. */
export interface Unique {
  key?: string | null;
  by?: string[] | null;
  while?: "queued" | "unfinished";
  for_ms?: number | null;
  on_conflict?: "reject" | "replace" | "return";
}

export interface WaitFor {
  event: string;
  timeout_ms?: number | null;
  repeat?: number | boolean;
  until?: WaitUntil | null;
  transient?: boolean;
}

export interface WaitPage {
  items: WaitView[];
  counts: Record<string, number>;
  next_cursor?: string | null;
}

/** The signal that ends a repeated wait. */
export interface WaitUntil {
  event: string;
}

/** An approval or a signal that an open run waits for. */
export interface WaitView {
  kind: "approval" | "branches" | "signal";
  run_id: string;
  workflow: string;
  parent_run_id?: string | null;
  parent_workflow?: string | null;
  token_id: string;
  name: string;
  place: string;
  title: string;
  since_ms: number;
  due_at_ms?: number | null;
  has_form?: boolean;
}

/** Warn that the log of a run comes near its limit. */
export interface WarnOperations {
  type: "WarnOperations";
  count: number;
}

export interface WebhookPage {
  items: WebhookView[];
}

/** A webhook as a whole; what is left out has its default. */
export interface WebhookPut {
  url: string;
  events?: string[];
  queues?: string[];
  workflows?: string[];
  format?: "rota" | "slack";
  enabled?: boolean;
  description?: string;
  secret?: string | null;
}

/** How the receiver took an event of the type `webhook-test`. */
export interface WebhookTest {
  ok: boolean;
  code?: number | null;
  error?: string | null;
  took_ms: number;
}

export interface WebhookView {
  name: string;
  url: string;
  events: string[];
  queues: string[];
  workflows: string[];
  format: "rota" | "slack";
  enabled: boolean;
  description: string;
  state: string;
  disabled_at_ms?: number | null;
  disabled_because?: string | null;
  failures: number;
  failing_since_ms?: number | null;
  last_success_ms?: number | null;
  missed_at_ms?: number | null;
  delivered: number;
  given_up: number;
  pending: number;
  created_at_ms: number;
  updated_at_ms: number;
  secret?: string | null;
  deliveries?: DeliveryView[];
}

/** Why tasks wait. */
export interface WhyView {
  code: string;
  text: string;
  is_stuck?: boolean;
  limit_key?: string | null;
  opens_at_ms?: number | null;
}

export interface WorkerLeft {
  id: string;
  released: number;
}

export interface WorkerMetrics {
  tasks_completed?: number;
  tasks_failed?: number;
  average_task_duration_ms?: number;
  p50_ms?: number | null;
  p95_ms?: number | null;
  p99_ms?: number | null;
}

export interface WorkerPage {
  items: WorkerView[];
  next_cursor?: string | null;
}

export interface WorkerRegistration {
  node_id?: string;
  capabilities?: string[];
  max_concurrent_tasks?: number;
  tasks?: string[] | null;
  queues?: string[] | null;
  heartbeat_interval_ms?: number;
  worker_id?: string | null;
  group?: string | null;
  labels?: Record<string, string> | string[] | null;
}

export type WorkerState = "active" | "draining" | "quarantined";

export interface WorkerView {
  id: string;
  node_id: string;
  capabilities: string[];
  max_concurrent_tasks: number;
  current_tasks: number;
  health: Health;
  state: WorkerState;
  last_heartbeat_ms: number;
  started_at_ms: number;
  incarnation: number;
  heartbeat_interval_ms: number;
  lease_ms: number;
  metrics: WorkerMetrics;
  tasks?: string[] | null;
  queues?: string[] | null;
  group?: string | null;
  labels?: Record<string, string> | string[] | null;
  load?: Record<string, number>;
  breakers?: BreakerView[];
  priority?: number | null;
  available_capacity?: number | null;
  success_rate?: number | null;
  score?: ScoreView | null;
}

export interface WorkflowCheck {
  ok: boolean;
  problems?: WorkflowProblem[];
  warnings?: WorkflowProblem[];
}

export interface WorkflowDetail {
  name: string;
  version: number;
  hash: string;
  created_at_ms: number;
  is_current?: boolean;
  definition?: Definition | null;
  code?: CodeDefinition | null;
  versions?: WorkflowView[];
}

export interface WorkflowPage {
  items: WorkflowView[];
  next_cursor?: string | null;
}

export interface WorkflowProblem {
  path: string;
  code: string;
  message: string;
  line?: number | null;
  column?: number | null;
}

/** One version of a workflow. */
export interface WorkflowView {
  name: string;
  version: number;
  hash: string;
  created_at_ms: number;
  is_current?: boolean;
}

/** Write a value at a path of the branch named, or of the run. */
export interface WriteContext {
  type: "WriteContext";
  path: string[];
  value?: unknown;
  branch?: [number, number] | null;
}

/** Every endpoint of the HTTP API, by its method and path. */
export interface Operations {
  /** List the waiting tasks by lane, and why they wait */
  "GET /api/backlog": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: BacklogPage;
  };
  /** List events, or follow them */
  "GET /api/events": {
    path: Record<string, never>;
    query: {
      after?: number;
      last?: number;
      type?: string[];
      subject?: string;
      prefix?: string;
      limit?: number;
      wait_ms?: number;
    };
    body: undefined;
    answer: EventPage;
  };
  /** List failed tasks that nobody has acknowledged, grouped by their error */
  "GET /api/failures": {
    path: Record<string, never>;
    query: {
      acknowledged?: boolean;
    };
    body: undefined;
    answer: FailurePage;
  };
  /** Acknowledge all failed tasks of a group, or take that back with `undo` */
  "POST /api/failures/{fingerprint}/acknowledge": {
    path: {
      fingerprint: string;
    };
    query: Record<string, never>;
    body: FailureAcknowledging | null | undefined;
    answer: TaskCount;
  };
  /** Retry all failed tasks of a group */
  "POST /api/failures/{fingerprint}/retry": {
    path: {
      fingerprint: string;
    };
    query: Record<string, never>;
    body: Redrive | null | undefined;
    answer: TaskCount;
  };
  /** Show a job and what happened to it */
  "GET /api/jobs/{job_id}": {
    path: {
      job_id: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: JobAnswer;
  };
  /** Finish a job; the body is its result */
  "POST /api/jobs/{job_id}/complete": {
    path: {
      job_id: string;
    };
    query: Record<string, never>;
    body: unknown | undefined;
    answer: JobAnswer;
  };
  /** End a job's attempt with an error */
  "POST /api/jobs/{job_id}/fail": {
    path: {
      job_id: string;
    };
    query: Record<string, never>;
    body: JobFailure | null | undefined;
    answer: JobAnswer;
  };
  /** Claim a job */
  "POST /api/jobs/{job_id}/start": {
    path: {
      job_id: string;
    };
    query: {
      worker_id?: string;
    };
    body: JobStart | null | undefined;
    answer: JobAnswer;
  };
  /** List limits by kind or prefix, in the order of their keys */
  "GET /api/limits": {
    path: Record<string, never>;
    query: {
      kind?: "concurrency" | "rate";
      prefix?: string;
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: KeyLimitPage;
  };
  /** Unpin a limit */
  "DELETE /api/limits/{key}": {
    path: {
      key: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: KeyLimitDeleted;
  };
  /** Show a limit, and how much of it is used */
  "GET /api/limits/{key}": {
    path: {
      key: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: KeyLimitView;
  };
  /** Set a limit, and pin it */
  "PUT /api/limits/{key}": {
    path: {
      key: string;
    };
    query: Record<string, never>;
    body: KeyLimitPut;
    answer: KeyLimitView;
  };
  /** Count a use of a rate outside tasks, if it is free now */
  "POST /api/limits/{key}/consume": {
    path: {
      key: string;
    };
    query: Record<string, never>;
    body: LimitConsume | null | undefined;
    answer: LimitConsumed;
  };
  /** List the locks that are held */
  "GET /api/locks": {
    path: Record<string, never>;
    query: {
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: LockPage;
  };
  /** Show the holder of a lock, and how many wait for it */
  "GET /api/locks/{name}": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: LockView;
  };
  /** Take a lock, or wait for it */
  "POST /api/locks/{name}/acquire": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: LockAcquire;
    answer: LockView;
  };
  /** Release a lock */
  "POST /api/locks/{name}/release": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: LockRelease;
    answer: LockView;
  };
  /** Renew a lock that is held */
  "POST /api/locks/{name}/renew": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: LockRenew;
    answer: LockView;
  };
  /** Let a browser keep a token in a cookie */
  "POST /api/login": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: LoginRequest;
    answer: Me;
  };
  /** Let a browser forget its token */
  "POST /api/logout": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: LoggedOut;
  };
  /** Show the caller and its permissions */
  "GET /api/me": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Me;
  };
  /** List keys and values by prefix or pattern */
  "GET /api/memory": {
    path: Record<string, never>;
    query: {
      prefix?: string;
      pattern?: string;
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: MemoryPage;
  };
  /** Delete a key */
  "DELETE /api/memory/{key}": {
    path: {
      key: string;
    };
    query: {
      if_version?: number;
    };
    body: undefined;
    answer: MemoryDeleted;
  };
  /** Show the value of a key */
  "GET /api/memory/{key}": {
    path: {
      key: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: MemoryView;
  };
  /** Store a value under a key */
  "PUT /api/memory/{key}": {
    path: {
      key: string;
    };
    query: Record<string, never>;
    body: MemoryPut;
    answer: MemoryView;
  };
  /** Count everything: tasks and runs by state, workers by health, shards */
  "GET /api/overview": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Overview;
  };
  /** List queues with depth, oldest age and rates */
  "GET /api/queues": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: QueuePage;
  };
  /** Change the settings of a queue */
  "PATCH /api/queues/{queue}": {
    path: {
      queue: string;
    };
    query: Record<string, never>;
    body: QueuePatch;
    answer: QueueView;
  };
  /** Pause a queue: its tasks are not leased */
  "POST /api/queues/{queue}/pause": {
    path: {
      queue: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: QueueView;
  };
  /** Push the tasks of a queue no more; requests under way are finished */
  "DELETE /api/queues/{queue}/push": {
    path: {
      queue: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: PushView;
  };
  /** Show where the tasks of a queue are pushed to */
  "GET /api/queues/{queue}/push": {
    path: {
      queue: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: PushView;
  };
  /** Push the tasks of a queue to a URL, or change how */
  "PUT /api/queues/{queue}/push": {
    path: {
      queue: string;
    };
    query: Record<string, never>;
    body: PushPut;
    answer: PushView;
  };
  /** Resume a paused queue */
  "POST /api/queues/{queue}/resume": {
    path: {
      queue: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: QueueView;
  };
  /** List the tenants of a queue that have the most tasks, with their shares */
  "GET /api/queues/{queue}/tenants": {
    path: {
      queue: string;
    };
    query: {
      limit?: number;
    };
    body: undefined;
    answer: TenantPage;
  };
  /** Recount all limits from leases and queued tasks */
  "GET /api/recount/limits": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: LimitRecountView;
  };
  /** List runs, newest first */
  "GET /api/runs": {
    path: Record<string, never>;
    query: {
      workflow?: string;
      state?: RunState;
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: RunPage;
  };
  /** Start a run of a workflow, and wait for its end, if asked */
  "POST /api/runs": {
    path: Record<string, never>;
    query: {
      wait_ms?: number;
    };
    body: RunRequest;
    answer: RunView;
  };
  /** Show what runs wait for, and their live tasks by name and state */
  "GET /api/runs/activity": {
    path: Record<string, never>;
    query: {
      run?: string[];
    };
    body: undefined;
    answer: RunActivityPage;
  };
  /** Show a run, or wait for its end */
  "GET /api/runs/{run_id}": {
    path: {
      run_id: string;
    };
    query: {
      wait_ms?: number;
    };
    body: undefined;
    answer: RunView;
  };
  /** List the artifacts of a run, newest first */
  "GET /api/runs/{run_id}/artifacts": {
    path: {
      run_id: string;
    };
    query: {
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: ArtifactPage;
  };
  /** Cancel a run with its sub-workflows and its tasks */
  "POST /api/runs/{run_id}/cancel": {
    path: {
      run_id: string;
    };
    query: Record<string, never>;
    body: RunCancellation | null | undefined;
    answer: RunView;
  };
  /** Start a new run on the input of another run, from one of its nodes */
  "POST /api/runs/{run_id}/fork": {
    path: {
      run_id: string;
    };
    query: Record<string, never>;
    body: ForkRequest;
    answer: RunView;
  };
  /** Show a run's nodes and transitions with counts of tokens */
  "GET /api/runs/{run_id}/graph": {
    path: {
      run_id: string;
    };
    query: {
      at?: number;
    };
    body: undefined;
    answer: RunGraph;
  };
  /** List the journal of a run: its events and the decisions of each */
  "GET /api/runs/{run_id}/journal": {
    path: {
      run_id: string;
    };
    query: {
      after?: number;
      limit?: number;
      decisions?: number;
    };
    body: undefined;
    answer: JournalPage;
  };
  /** List the log of a function: its operations since its last restart */
  "GET /api/runs/{run_id}/operations": {
    path: {
      run_id: string;
    };
    query: {
      after?: number;
      limit?: number;
    };
    body: undefined;
    answer: OperationPage;
  };
  /** Pause a run and its sub-workflows: running tasks finish, and nothing new starts */
  "POST /api/runs/{run_id}/pause": {
    path: {
      run_id: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: RunView;
  };
  /** Show the reply of a function to the signal with this key, or wait for it */
  "GET /api/runs/{run_id}/replies/{key}": {
    path: {
      run_id: string;
      key: string;
    };
    query: {
      wait_ms?: number;
    };
    body: undefined;
    answer: SignalReply;
  };
  /** Resume a paused run and its sub-workflows */
  "POST /api/runs/{run_id}/resume": {
    path: {
      run_id: string;
    };
    query: Record<string, never>;
    body: RunResumption | null | undefined;
    answer: RunView;
  };
  /** Retry a failed run from where it failed */
  "POST /api/runs/{run_id}/retry": {
    path: {
      run_id: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: RunView;
  };
  /** List the open scopes of a run, the oldest first */
  "GET /api/runs/{run_id}/scopes": {
    path: {
      run_id: string;
    };
    query: {
      closed?: boolean;
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: ScopePage;
  };
  /** Add branches to a scope whose fan-out is `open` */
  "POST /api/runs/{run_id}/scopes/{scope}/branches": {
    path: {
      run_id: string;
      scope: string;
    };
    query: Record<string, never>;
    body: BranchesRequest;
    answer: BranchesView;
  };
  /** Cancel an open scope: its branches end, and its join never fires */
  "POST /api/runs/{run_id}/scopes/{scope}/cancel": {
    path: {
      run_id: string;
      scope: string;
    };
    query: Record<string, never>;
    body: ScopeEnding | null | undefined;
    answer: RunView;
  };
  /** Complete an open scope: its join fires with what has arrived */
  "POST /api/runs/{run_id}/scopes/{scope}/complete": {
    path: {
      run_id: string;
      scope: string;
    };
    query: Record<string, never>;
    body: ScopeEnding | null | undefined;
    answer: RunView;
  };
  /** Send a run a signal that it waits for, now or later */
  "POST /api/runs/{run_id}/signal": {
    path: {
      run_id: string;
    };
    query: Record<string, never>;
    body: SignalRequest;
    answer: RunView;
  };
  /** List the values that a function has appended to a stream, or wait for them */
  "GET /api/runs/{run_id}/streams/{name}": {
    path: {
      run_id: string;
      name: string;
    };
    query: {
      after?: number;
      limit?: number;
      wait_ms?: number;
    };
    body: undefined;
    answer: RunStreamPage;
  };
  /** List the tokens of a run, the oldest first */
  "GET /api/runs/{run_id}/tokens": {
    path: {
      run_id: string;
    };
    query: {
      node?: string;
      state?: TokenState;
      per_node?: number;
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: RunTokenPage;
  };
  /** Show for each queue and capability set how many workers it wants, and why */
  "GET /api/scale": {
    path: Record<string, never>;
    query: {
      queue?: string[];
      task?: string[];
      target_ms?: number;
      concurrency?: number;
    };
    body: undefined;
    answer: ScalePage;
  };
  /** List schedules by name, each with its last firing */
  "GET /api/schedules": {
    path: Record<string, never>;
    query: {
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: SchedulePage;
  };
  /** Show the next times of a schedule that is not stored */
  "POST /api/schedules/preview": {
    path: Record<string, never>;
    query: {
      count?: number;
      after_ms?: number;
    };
    body: SchedulePut;
    answer: ScheduleTimes;
  };
  /** Make the schedules of an app those of its code */
  "POST /api/schedules/sync": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: ScheduleSync;
    answer: ScheduleSyncView;
  };
  /** Delete a schedule with its history */
  "DELETE /api/schedules/{name}": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: ScheduleView;
  };
  /** Show a schedule with its last firings */
  "GET /api/schedules/{name}": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: ScheduleView;
  };
  /** Make a schedule, or change it */
  "PUT /api/schedules/{name}": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: SchedulePut;
    answer: ScheduleView;
  };
  /** Fire a schedule for its times in a range that has passed */
  "POST /api/schedules/{name}/backfill": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: ScheduleBackfill;
    answer: BackfillCount;
  };
  /** Show the next times of a schedule, paused or not */
  "GET /api/schedules/{name}/next": {
    path: {
      name: string;
    };
    query: {
      count?: number;
      after_ms?: number;
    };
    body: undefined;
    answer: ScheduleTimes;
  };
  /** Pause a schedule: it does not fire until it is resumed */
  "POST /api/schedules/{name}/pause": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: SchedulePauseRequest | null | undefined;
    answer: ScheduleView;
  };
  /** Resume a paused schedule from its next time on */
  "POST /api/schedules/{name}/resume": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: ScheduleView;
  };
  /** Fire a schedule now, paused or not, by its rule for overlaps */
  "POST /api/schedules/{name}/run": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: FiringView;
  };
  /** Show the last hour of queues, in slots of ten seconds */
  "GET /api/series": {
    path: Record<string, never>;
    query: {
      queue?: string[];
    };
    body: undefined;
    answer: SeriesPage;
  };
  /** List services with their shards, members and moving shards */
  "GET /api/services": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: ServicePage;
  };
  /** Show a service: the owner and the target of each shard */
  "GET /api/services/{name}": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: ServiceView;
  };
  /** Set the number of shards and the protocol of members; creates the service if needed */
  "PUT /api/services/{name}": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: ServiceChange;
    answer: ServiceView;
  };
  /** Become a member of a service, and get the shards to hold */
  "POST /api/services/{name}/members": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: MemberRegistration;
    answer: AssignmentData;
  };
  /** Leave a service: its shards go to others at once */
  "DELETE /api/services/{name}/members/{worker_id}": {
    path: {
      name: string;
      worker_id: string;
    };
    query: {
      incarnation?: string;
    };
    body: undefined;
    answer: MemberLeft;
  };
  /** Drain a member: it gives up its shards and gets none */
  "POST /api/services/{name}/members/{worker_id}/drain": {
    path: {
      name: string;
      worker_id: string;
    };
    query: Record<string, never>;
    body: MemberDrain | null | undefined;
    answer: ServiceView;
  };
  /** Send the heartbeat of a member with the shards it holds, and wait for a change */
  "POST /api/services/{name}/members/{worker_id}/heartbeat": {
    path: {
      name: string;
      worker_id: string;
    };
    query: {
      wait_ms?: number;
    };
    body: MemberHeartbeat;
    answer: AssignmentData;
  };
  /** Show the checkpoint of a shard */
  "GET /api/services/{name}/shards/{shard}/checkpoint": {
    path: {
      name: string;
      shard: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: CheckpointView;
  };
  /** Save the checkpoint of a shard */
  "PUT /api/services/{name}/shards/{shard}/checkpoint": {
    path: {
      name: string;
      shard: string;
    };
    query: Record<string, never>;
    body: CheckpointRequest;
    answer: CheckpointView;
  };
  /** Show what runs wait for, and their live tasks by name and state */
  "GET /api/standings": {
    path: Record<string, never>;
    query: {
      run?: string[];
    };
    body: undefined;
    answer: RunActivityPage;
  };
  /** Show the coordinator's version, store, settings, limits and metrics */
  "GET /api/system": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: SystemView;
  };
  /** List tasks, newest first */
  "GET /api/tasks": {
    path: Record<string, never>;
    query: {
      state?: TaskState[];
      queue?: string;
      name?: string;
      label?: string;
      key?: string;
      acknowledged?: boolean;
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: TaskPage;
  };
  /** Submit one task or many */
  "POST /api/tasks": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: NewTask[] | NewTask;
    answer: TaskView[] | TaskView;
  };
  /** Acknowledge all failed tasks that match and that nobody has acknowledged */
  "POST /api/tasks/acknowledge": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: AcknowledgedSelection;
    answer: TaskCount;
  };
  /** Cancel all tasks that match */
  "POST /api/tasks/cancel": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: TaskSelection;
    answer: TaskCount;
  };
  /** Retry all tasks that match */
  "POST /api/tasks/retry": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: TaskSelection;
    answer: TaskCount;
  };
  /** Show a task, or wait for its end */
  "GET /api/tasks/{task_id}": {
    path: {
      task_id: string;
    };
    query: {
      wait_ms?: number;
    };
    body: undefined;
    answer: TaskView;
  };
  /** Acknowledge a failed task, or take that back with `undo` */
  "POST /api/tasks/{task_id}/acknowledge": {
    path: {
      task_id: string;
    };
    query: Record<string, never>;
    body: Acknowledging | null | undefined;
    answer: TaskView;
  };
  /** Add branches to an open scope around a leased task of a run */
  "POST /api/tasks/{task_id}/branches": {
    path: {
      task_id: string;
    };
    query: Record<string, never>;
    body: SiblingsRequest;
    answer: BranchesView;
  };
  /** Cancel a task that has not ended */
  "POST /api/tasks/{task_id}/cancel": {
    path: {
      task_id: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: TaskView;
  };
  /** Read what the handler of a task has logged, the oldest line first */
  "GET /api/tasks/{task_id}/logs": {
    path: {
      task_id: string;
    };
    query: {
      attempt?: number;
      level?: "critical" | "debug" | "error" | "info" | "warning";
      after?: number;
      limit?: number;
      wait_ms?: number;
    };
    body: undefined;
    answer: LogPage;
  };
  /** Retry a failed or cancelled task */
  "POST /api/tasks/{task_id}/retry": {
    path: {
      task_id: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: TaskView;
  };
  /** Show the events and attempts of a task, and why it waits */
  "GET /api/tasks/{task_id}/timeline": {
    path: {
      task_id: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: TaskTimeline;
  };
  /** List access tokens */
  "GET /api/tokens": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: TokenPage;
  };
  /** Create an access token */
  "POST /api/tokens": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: TokenRequest;
    answer: NewTokenAnswer;
  };
  /** Revoke an access token */
  "DELETE /api/tokens/{token_id}": {
    path: {
      token_id: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: TokenRevoked;
  };
  /** List the approvals and signals that open runs wait for */
  "GET /api/waits": {
    path: Record<string, never>;
    query: {
      kind?: "approval" | "signal";
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: WaitPage;
  };
  /** List the webhooks by name, without their deliveries */
  "GET /api/webhooks": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: WebhookPage;
  };
  /** Delete a webhook with its deliveries; what waits is not delivered */
  "DELETE /api/webhooks/{name}": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: WebhookView;
  };
  /** Show a webhook with its newest deliveries */
  "GET /api/webhooks/{name}": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: WebhookView;
  };
  /** Make a webhook, or replace what is set for it */
  "PUT /api/webhooks/{name}": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: WebhookPut;
    answer: WebhookView;
  };
  /** Send an event of the type `webhook-test` now, and show how the receiver took it */
  "POST /api/webhooks/{name}/test": {
    path: {
      name: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: WebhookTest;
  };
  /** Find workers */
  "GET /api/workers": {
    path: Record<string, never>;
    query: {
      capability?: string[];
      health?: Health[];
      min_available?: number;
      group?: string;
      rank?: boolean;
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: WorkerPage;
  };
  /** Register a worker */
  "POST /api/workers": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: WorkerRegistration;
    answer: WorkerView;
  };
  /** Remove a worker; its leases are released at once, without using up an attempt */
  "DELETE /api/workers/{worker_id}": {
    path: {
      worker_id: string;
    };
    query: {
      incarnation?: number;
    };
    body: undefined;
    answer: WorkerLeft;
  };
  /** Show a worker */
  "GET /api/workers/{worker_id}": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: WorkerView;
  };
  /** Drain a worker: it finishes its tasks and gets no new ones */
  "POST /api/workers/{worker_id}/drain": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: WorkerView;
  };
  /** Send the heartbeat of a worker with its running tasks */
  "POST /api/workers/{worker_id}/heartbeat": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: HeartbeatRequest;
    answer: HeartbeatAnswer;
  };
  /** Lease tasks, or wait for some */
  "POST /api/workers/{worker_id}/lease": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: LeaseRequest;
    answer: LeaseAnswer;
  };
  /** Report what the handlers of leased tasks have logged */
  "POST /api/workers/{worker_id}/logs": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: AttemptLogItem[] | LogReport;
    answer: ResultAnswer;
  };
  /** Report what functions have done so far */
  "POST /api/workers/{worker_id}/operations": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: OperationsReport;
    answer: OperationsAnswer;
  };
  /** Report the progress of leased tasks */
  "POST /api/workers/{worker_id}/progress": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: ProgressItem[] | ProgressReport;
    answer: ResultAnswer;
  };
  /** Quarantine a worker: it gets no new tasks because of how it works */
  "POST /api/workers/{worker_id}/quarantine": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: WorkerView;
  };
  /** Report the results of leased tasks */
  "POST /api/workers/{worker_id}/results": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: ResultReport;
    answer: ResultAnswer;
  };
  /** Resume a worker: it gets tasks again */
  "POST /api/workers/{worker_id}/resume": {
    path: {
      worker_id: string;
    };
    query: Record<string, never>;
    body: NoFields | null | undefined;
    answer: WorkerView;
  };
  /** List workflows by name, the current version of each */
  "GET /api/workflows": {
    path: Record<string, never>;
    query: {
      limit?: number;
      cursor?: string;
    };
    body: undefined;
    answer: WorkflowPage;
  };
  /** Validate a definition without storing it */
  "POST /api/workflows/validate": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: Definition;
    answer: WorkflowCheck;
  };
  /** Show the current version of a workflow, and list all of them */
  "GET /api/workflows/{workflow}": {
    path: {
      workflow: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: WorkflowDetail;
  };
  /** Store a definition */
  "PUT /api/workflows/{workflow}": {
    path: {
      workflow: string;
    };
    query: {
      publish?: "always" | "never" | "new";
    };
    body: Definition;
    answer: WorkflowView;
  };
  /** Show one version of a workflow */
  "GET /api/workflows/{workflow}/versions/{version}": {
    path: {
      workflow: string;
      version: string;
    };
    query: Record<string, never>;
    body: undefined;
    answer: WorkflowDetail;
  };
  /** Show whether the coordinator and each of its parts are healthy */
  "GET /health": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: HealthAnswer;
  };
  /** Answer as long as the process runs */
  "GET /health/live": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Alive;
  };
  /** Show whether the coordinator accepts requests */
  "GET /health/ready": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: Alive;
  };
  /** Show the metrics for Prometheus */
  "GET /metrics": {
    path: Record<string, never>;
    query: Record<string, never>;
    body: undefined;
    answer: string;
  };
}
