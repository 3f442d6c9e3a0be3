// The list of all pages: their addresses, and how the side bar shows them. The module of a page is
// fetched when it is first opened; it exports the component of the page.
import { short } from "./format.js";
import { page } from "./router.js";

const failed = ({ unacknowledged: count }) => (count ? { text: short(count), tone: "red" } : null);
const needs = ({ waits }) => (waits.approval ? { text: short(waits.approval), tone: "amber" } : waits.signal ? { text: short(waits.signal) } : null);
const stuck = ({ stuck: count }) => (count ? { text: `${short(count)} stuck`, tone: "red" } : null);
const queues = ({ paused_queues: paused, queues: count }) => (paused.length ? { text: `${paused.length} paused`, tone: "slate" } : { text: short(count) });
const runs = ({ runs: { running, failed: count } }) => (running ? { text: running, tone: "blue" } : count ? { text: count, tone: "red" } : null);
const late = ({ workers: { healthy = 0, degraded = 0, unhealthy = 0 } }) => (unhealthy || degraded ? { text: `${unhealthy + degraded} late`, tone: unhealthy ? "red" : "amber" } : { text: short(healthy) });
const shards = ({ shards: { unowned, moving } = {} }) => (unowned ? { text: short(unowned), tone: "red" } : moving ? { text: short(moving), tone: "amber" } : null);

page({ path: "/", title: "Overview", load: () => import("./pages/overview.js"), nav: { label: "Overview", order: 0, key: "o", badge: stuck } });
page({ path: "/needs", title: "Needs you", load: () => import("./pages/needs.js"), nav: { label: "Needs you", order: 5, key: "n", badge: needs } });
page({ path: "/tasks", title: "Tasks", load: () => import("./pages/tasks.js"), nav: { label: "Tasks", order: 10, key: "t" } });
page({ path: "/tasks/:id", title: ({ id }) => `Task ${id}`, load: () => import("./pages/task.js") });
page({ path: "/queues", title: "Queues", load: () => import("./pages/queues.js"), nav: { label: "Queues", order: 20, key: "q", badge: queues } });
page({ path: "/limits", title: "Limits", load: () => import("./pages/limits.js"), nav: { label: "Limits", order: 25, key: "m" } });
page({ path: "/failures", title: "Failures", load: () => import("./pages/failures.js"), nav: { label: "Failures", order: 30, key: "f", badge: failed } });
page({ path: "/workflows", title: "Workflows", load: () => import("./pages/workflows.js"), nav: { label: "Workflows", order: 40, key: "l" } });
page({ path: "/workflows/:name", title: ({ name }) => name, load: () => import("./pages/workflow.js") });
page({ path: "/runs", title: "Runs", load: () => import("./pages/runs.js"), nav: { label: "Runs", order: 50, key: "r", badge: runs } });
page({ path: "/runs/:id", title: ({ id }) => `Run ${id}`, load: () => import("./pages/run.js") });
page({ path: "/schedules", title: "Schedules", load: () => import("./pages/schedules.js"), nav: { label: "Schedules", order: 55, key: "d" } });
page({ path: "/schedules/:name", title: ({ name }) => name, load: () => import("./pages/schedule.js") });
page({ path: "/workers", title: "Workers", load: () => import("./pages/workers.js"), nav: { label: "Workers", order: 60, key: "w", badge: late } });
page({ path: "/workers/:id", title: ({ id }) => `Worker ${id}`, load: () => import("./pages/worker.js") });
page({ path: "/services", title: "Services", load: () => import("./pages/services.js"), nav: { label: "Services", order: 70, key: "s", badge: shards } });
page({ path: "/services/:name", title: ({ name }) => name, load: () => import("./pages/service.js") });
page({ path: "/memory", title: "Memory", load: () => import("./pages/memory.js"), nav: { label: "Memory", order: 74, key: "b" } });
page({ path: "/locks", title: "Locks", load: () => import("./pages/locks.js"), nav: { label: "Locks", order: 76, key: "k" } });
page({ path: "/webhooks", title: "Webhooks", load: () => import("./pages/webhooks.js"), nav: { label: "Webhooks", order: 83, key: "h" } });
page({ path: "/webhooks/:name", title: ({ name }) => name, load: () => import("./pages/webhook.js") });
page({ path: "/access", title: "Access", load: () => import("./pages/access.js"), nav: { label: "Access", order: 85, key: "a" } });
page({ path: "/events", title: "Events", load: () => import("./pages/events.js"), nav: { label: "Events", order: 80, key: "e" } });
page({ path: "/system", title: "System", load: () => import("./pages/system.js"), nav: { label: "System", order: 90, key: "y" } });
