// The entries of a journal in words. Pure functions of an event or decision and the known tokens.

/** names: token number → node. */
export function eventWords(event, names) {
  const who = whoOf(event.token, names);
  switch (event.type) {
    case "RunStarted": return event.from_node ? `the run started, forked at ${event.from_node}` : "the run started";
    case "TaskEnded": return event.cancelled ? `the task of ${who} was cancelled` : event.ok ? `the task of ${who} succeeded` : `the task of ${who} failed: ${messageOf(event.error)}`;
    case "ChildEnded": return event.ok ? `the sub-run of ${who} completed` : `the sub-run of ${who} failed: ${messageOf(event.error)}`;
    case "Signalled": return `the signal ${event.name} came${event.sender ? ` from run ${event.sender}` : ""}`;
    case "SignalSent": return event.error ? `the signal of ${who} was refused: ${messageOf(event.error)}` : `the signal of ${who} was delivered`;
    case "TimerFired": return event.kind === "run" ? "the run's time was up" : event.kind === "slice" ? "the run went on with its next steps" : event.kind === "join" ? `the time of the join of scope ${event.number} was up` : `the ${event.kind} of ${names.get(event.number) || `token ${event.number}`} was over`;
    case "RunCancelled": return `an operator cancelled the run${event.reason ? `: ${event.reason}` : ""}`;
    case "RunPaused": return "an operator paused the run";
    case "RunResumed": return event.accept ? "an operator resumed the run and accepted the new code" : "an operator resumed the run";
    case "ScopeEndRequested": return `an operator ${event.action === "complete" ? "completed" : "cancelled"} scope ${event.scope}${event.reason ? `: ${event.reason}` : ""}`;
    case "BranchesAdded": return `${event.token ? who : "an operator"} added ${event.items.length} branches to scope ${event.scope}${event.is_last ? ", the last ones" : ""}`;
    case "RunRetried": return "an operator retried the run";
    case "OperationsReported": return `the function did ${operationWords(event.operations)}`;
    case "FunctionStopped": return stopWords(event.report);
    default: return event.type;
  }
}

const ITEM_SPAN = 2 ** 32; // between the tokens of two items of a map
const MOST_NAMED = 4;

/** A token by its node; of a function: the operation, an item of its map, or the function itself. */
function whoOf(token, names) {
  if (token === 0) return "the function";
  const number = token % ITEM_SPAN, where = names.get(number);
  if (token >= ITEM_SPAN) return `item ${Math.floor(token / ITEM_SPAN) - 1} of ${where || `operation ${number}`}`;
  return where ? `${where} (token ${token})` : `token ${token}`;
}

function operationWords(operations) {
  const named = operations.slice(0, MOST_NAMED).map((one) => `${one.path} ${one.state}`).join(", ");
  return operations.length > MOST_NAMED ? `${named} and ${operations.length - MOST_NAMED} more` : named || "nothing";
}

function stopWords(report) {
  const did = report.operations?.length ? ` after ${operationWords(report.operations)}` : "";
  if (report.divergence) return `the function diverged from its log: ${report.divergence.message}`;
  if (report.waits) {
    const paths = report.waits.flat();
    return `the function waits for ${paths.slice(0, MOST_NAMED).join(", ") || "nothing"}${paths.length > MOST_NAMED ? ` and ${paths.length - MOST_NAMED} more` : ""}${did}`;
  }
  if (report.error) return `the function failed: ${messageOf(report.error)}${did}`;
  return `the function ${report.restart === undefined ? "returned" : "restarts"}${did}`;
}

const messageOf = (error) => (error ? error.message || error.type || "no reason given" : "no reason given");

/** What a decision says: { text, code?, kind: "yes" | "no" | "bad" | "" }; null: nothing that people need. */
function decisionWords(decision, names, transitions) {
  const who = (number) => (names.get(number) ? `${names.get(number)} (token ${number})` : `token ${number}`);
  switch (decision.type) {
    case "Considered": return { kind: decision.taken ? "yes" : "no", text: `${wayOf(decision.transition, transitions)} ${decision.taken ? "is taken" : "is not taken"}`, code: decision.because };
    case "CreateToken": return decision.compensates ? { text: `${decision.node} is to be undone` } : { text: `a token comes to ${decision.node}${decision.stack?.length ? `, branch ${decision.stack.at(-1)[1]}` : ""}${decision.via ? ` by ${wayOf(decision.via, transitions)}` : ""}` };
    case "SetTokenState": return { text: `${who(decision.number)} is ${decision.state.replaceAll("_", " ")}${decision.error ? `: ${messageOf(decision.error)}` : ""}` };
    case "DispatchTask": return { text: `task ${decision.task} is queued in ${decision.queue || "default"} for ${who(decision.number)}`, value: decision.payload };
    case "CancelTask": return { text: `the task of ${who(decision.number)} is cancelled` };
    case "StartChild": return { text: `a run of ${decision.workflow} starts for ${who(decision.number)}`, value: decision.input };
    case "CancelChild": return { text: `the sub-run of ${who(decision.number)} is cancelled` };
    case "PauseChild": return { text: `the sub-run of ${who(decision.number)} is paused` };
    case "ResumeChild": return { text: `the sub-run of ${who(decision.number)} is resumed` };
    case "OpenScope": return { text: `${decision.key} fans out into ${decision.total} branches${decision.max_parallel ? `, ${decision.max_parallel} at a time` : ""}` };
    case "ExtendScope": return { text: `scope ${decision.number} gets ${decision.count} more branches${decision.is_last ? ", the last ones" : ""}` };
    case "SetBranchState": return { text: `branch ${decision.index} ${decision.state === "arrived" ? `has arrived before ${decision.join}` : `is ${decision.state}`}` };
    case "CloseScope": return { kind: "yes", text: `scope ${decision.number} closes`, code: decision.because };
    case "WriteContext": return { text: "written:", code: decision.path.join("."), value: decision.value };
    case "SetTimer": return decision.kind === "slice" ? { text: "the next steps follow" } : { text: `a ${decision.kind} timer is set`, at: decision.due_at_ms };
    case "DropTimer": return null;
    case "KeepSignal": return { text: `the signal ${decision.name} is kept until something waits for it` };
    case "TakeSignal": return { text: `the kept signal ${decision.name} is taken` };
    case "SendSignal": return { text: `the signal ${decision.name} is sent to ${decision.run ? `run ${decision.run}` : "the run itself"}`, value: decision.payload };
    case "CountIteration": return { text: `round ${decision.count} of ${wayOf(decision.transition, transitions)}` };
    case "ResumeFunction": return { text: decision.reported ? `the function is resumed after ${decision.reported} reported entries` : "the function is queued" };
    case "AskTasks": return { text: `${decision.count > 1 ? `${decision.count} tasks are` : "a task is"} queued for ${who(decision.number)}` };
    case "AskChild": return { text: `a run starts for ${who(decision.number)}` };
    case "EndOperation": return { kind: decision.state === "failed" ? "bad" : "", text: `${who(decision.number)} is ${decision.state}` };
    case "DropOperations": return { kind: "no", text: `${decision.paths.length} operations leave the log: ${decision.because}`, code: decision.paths.slice(0, MOST_NAMED).join(", ") };
    case "RestartFunction": return { kind: "yes", text: `the function restarts, for the ${decision.restarts}. time` };
    case "WarnOperations": return { kind: "bad", text: `${decision.count} operations: the log comes near its limit` };
    case "SetRunState": return { kind: decision.state === "failed" || decision.state === "timed_out" ? "bad" : "yes", text: `the run is ${decision.state}${decision.error ? `: ${messageOf(decision.error)}` : ""}` };
    default: return { text: decision.type };
  }
}

const MANY = 3; // decisions alike from which on they are told as one

/** What can be told together with its like: [key, how many of them are told]. */
function likeness(decision, transitions) {
  switch (decision.type) {
    case "CreateToken": return [`c${decision.node} ${decision.via}`, (count) => `${count} tokens come to ${decision.node}${decision.via ? ` by ${wayOf(decision.via, transitions)}` : ""}`];
    case "SetTokenState": return decision.error ? null : [`s${decision.state}`, (count) => `${count} tokens are ${decision.state.replaceAll("_", " ")}`];
    case "SetBranchState": return [`b${decision.scope} ${decision.state} ${decision.join}`, (count) => `${count} branches ${decision.state === "arrived" ? `have arrived before ${decision.join}` : `are ${decision.state}`}`];
    case "DispatchTask": return [`d${decision.task} ${decision.queue}`, (count) => `${count} tasks ${decision.task} are queued in ${decision.queue || "default"}`];
    case "CancelTask": return ["t", (count) => `${count} tasks are cancelled`];
    case "CancelChild": return ["h", (count) => `${count} sub-runs are cancelled`];
    case "PauseChild": return ["p", (count) => `${count} sub-runs are paused`];
    case "ResumeChild": return ["r", (count) => `${count} sub-runs are resumed`];
    default: return null;
  }
}

/** All decisions of an entry in words, those alike as one line where the first of them stood. */
export function linesOf(decisions, names, transitions) {
  const counts = new Map();
  for (const one of decisions) {
    const like = likeness(one, transitions);
    if (like) counts.set(like[0], (counts.get(like[0]) || 0) + 1);
  }
  const told = new Set();
  return decisions.flatMap((one) => {
    const like = likeness(one, transitions);
    if (!like || counts.get(like[0]) < MANY) return decisionWords(one, names, transitions) || [];
    if (told.has(like[0])) return [];
    told.add(like[0]);
    return { text: like[1](counts.get(like[0])) };
  });
}

/** A transition by its own name, or by where it leads. */
export function wayOf(name, transitions) {
  const at = /^transitions\[(\d+)\]$/.exec(name);
  const one = at && transitions[Number(at[1])];
  const tier = /^priority (-?\d+)$/.exec(name);
  if (tier) return `tier ${tier[1]}`;
  return one ? `${one.from} → ${one.to}` : name;
}

/** Token numbers and their nodes, as far as these entries and tokens tell. */
export function namesOf(entries, tokens) {
  const names = new Map(tokens.map((one) => [Number(one.id.split(".").at(-1)), one.path || one.node_id]));
  for (const entry of entries) {
    for (const decision of entry.decisions) if (decision.type === "CreateToken") names.set(decision.number, decision.node);
    // What a finished task wrote is written under the name of its node.
    const written = entry.decisions.find((one) => one.type === "WriteContext" && one.path[0] === "nodes");
    if (written && entry.event.token !== undefined) names.set(entry.event.token, written.path[1]);
  }
  return names;
}
