// The decisions of a journal in words. Pure functions of a decision and of the names of its entry.

const MOST_NAMED = 4; // operations of one decision

const messageOf = (error) => (error ? error.message || error.type || "no reason given" : "no reason given");

/** What a decision says: { text, code?, kind: "yes" | "no" | "bad" | "" }; null: nothing that people need. */
function decisionWords(decision, names, transitions) {
  const who = (number) => names.token(number);
  switch (decision.type) {
    case "Considered": return { kind: decision.taken ? "yes" : "no", text: `${wayOf(decision.transition, transitions)} ${decision.taken ? "is taken" : "is not taken"}`, code: decision.because };
    case "CreateToken": return decision.compensates ? { text: `${who(decision.number)} begins` } : { text: `${who(decision.number)} begins${decision.via ? ` by ${wayOf(decision.via, transitions)}` : ""}` };
    case "SetTokenState": return { text: `${who(decision.number)} is ${decision.state.replaceAll("_", " ")}${decision.error ? `: ${messageOf(decision.error)}` : ""}` };
    case "DispatchTask": return { text: `task ${decision.task} is queued in ${decision.queue || "default"} for ${who(decision.number)}`, value: decision.payload };
    case "CancelTask": return { text: `the task of ${who(decision.number)} is cancelled` };
    case "StartChild": return { text: `a run of ${decision.workflow} starts for ${who(decision.number)}`, value: decision.input };
    case "CancelChild": return { text: `the child run of ${who(decision.number)} is cancelled` };
    case "PauseChild": return { text: `the child run of ${who(decision.number)} is paused` };
    case "ResumeChild": return { text: `the child run of ${who(decision.number)} is resumed` };
    case "OpenScope": return { text: `${names.scope(decision.number)} fans out into ${decision.total} branches${decision.max_parallel ? `, ${decision.max_parallel} at a time` : ""}` };
    case "ExtendScope": return { text: `${names.scope(decision.number)} gets ${decision.count} more branches${decision.is_last ? ", the last ones" : ""}` };
    case "SetBranchState": return { text: `branch ${decision.index} of ${names.scope(decision.scope)} ${branchWords(decision)[0]}` };
    case "CloseScope": return { kind: "yes", text: `${names.scope(decision.number)} closes`, code: decision.because };
    case "WriteContext": return { text: "written:", code: decision.path.join("."), value: decision.value };
    case "SetTimer": return decision.kind === "slice" ? { text: "the next steps follow" } : { text: `a ${decision.kind} timer is set`, at: decision.due_at_ms };
    case "DropTimer": return null;
    case "KeepSignal": return { text: `the signal ${decision.name} is kept until a node waits for it` };
    case "TakeSignal": return { text: `the kept signal ${decision.name} is taken` };
    case "SendSignal": return { text: `the signal ${decision.name} is sent to ${decision.run ? `run ${decision.run}` : "the run itself"}`, value: decision.payload };
    case "CountIteration": return { text: `round ${decision.count} of ${wayOf(decision.transition, transitions)}` };
    case "ResumeFunction": return { text: decision.reported ? `the function is resumed after ${decision.reported} reported entries` : "the function is queued" };
    case "AskTasks": return { text: `${decision.count > 1 ? `${decision.count} tasks are` : "a task is"} queued for ${who(decision.number)}` };
    case "AskChild": return { text: `a run starts for ${who(decision.number)}` };
    case "EndOperation": return { kind: decision.state === "failed" ? "bad" : "", text: `${who(decision.number)} is ${decision.state}` };
    case "DropOperations": return { kind: "no", text: `${decision.paths.length} operations leave the log: ${decision.because}`, code: decision.paths.slice(0, MOST_NAMED).join(", ") };
    case "RestartFunction": return { kind: "yes", text: `the function restarts, restart ${decision.restarts}` };
    case "WarnOperations": return { kind: "bad", text: `${decision.count} operations: the log comes near its limit` };
    case "SetRunState": return { kind: decision.state === "failed" || decision.state === "timed_out" ? "bad" : "yes", text: `the run is ${decision.state}${decision.error ? `: ${messageOf(decision.error)}` : ""}` };
    default: return { text: decision.type };
  }
}

const MANY = 3; // decisions alike from which on they are told as one

const BRANCH_WORDS = { waiting: ["waits for its turn", "wait for their turn"], live: ["begins", "begin"], ended: ["has ended", "have ended"], failed: ["has failed", "have failed"], cancelled: ["is cancelled", "are cancelled"] };

/** What has become of one branch, and of several. */
const branchWords = ({ state, join }) => state === "arrived" ? [`has arrived at ${join}`, `have arrived at ${join}`] : BRANCH_WORDS[state];

/** What can be told together with its like: [key, how many of them are told]. */
function likeness(decision, names, transitions) {
  switch (decision.type) {
    case "CreateToken": return [`c${decision.node} ${decision.via}`, (count) => `${count} branches begin at ${decision.node}${decision.via ? ` by ${wayOf(decision.via, transitions)}` : ""}`];
    case "SetTokenState": return decision.error ? null : [`s${nodeOf(decision.number, names)} ${decision.state}`, (count) => `${nodeOf(decision.number, names) || "tokens"}: ${count} are ${decision.state.replaceAll("_", " ")}`];
    case "SetBranchState": return [`b${decision.scope} ${decision.state} ${decision.join}`, (count) => `${count} branches ${branchWords(decision)[1]}`];
    case "DispatchTask": return [`d${decision.task} ${decision.queue}`, (count) => `${count} tasks ${decision.task} are queued in ${decision.queue || "default"}`];
    case "CancelTask": return ["t", (count) => `${count} tasks are cancelled`];
    case "CancelChild": return ["h", (count) => `${count} child runs are cancelled`];
    case "PauseChild": return ["p", (count) => `${count} child runs are paused`];
    case "ResumeChild": return ["r", (count) => `${count} child runs are resumed`];
    default: return null;
  }
}

/** All decisions of an entry in words, those alike as one line where the first of them stood. */
export function linesOf(decisions, names, transitions) {
  const counts = new Map();
  for (const one of decisions) {
    const like = likeness(one, names, transitions);
    if (like) counts.set(like[0], (counts.get(like[0]) || 0) + 1);
  }
  const told = new Set();
  return decisions.flatMap((one) => {
    const like = likeness(one, names, transitions);
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

/** The names of an entry: what its tokens and scopes are called by node and branch. */
export function namesOf(entry) {
  return {
    token: (number) => (number === 0 ? "the function" : entry.token_names?.[number] || `token ${number}`),
    scope: (number) => entry.scope_names?.[number] || `scope ${number}`,
  };
}

/** The node of a token, without its branches. */
const nodeOf = (number, names) => names.token(number).replace(/(\[\d+\])+$/, "").replace(/^token \d+$/, "");
