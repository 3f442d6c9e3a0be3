// The dashboard: pages register themselves, the shell shows the one that the address means.
// To add a page see README.md beside this file: one module in pages/, and its import here.
import "./pages/overview.js";
import "./pages/tasks.js";
import "./pages/task.js";
import "./pages/queues.js";
import "./pages/limits.js";
import "./pages/failures.js";
import "./pages/workers.js";
import "./pages/worker.js";
import "./pages/workflows.js";
import "./pages/workflow.js";
import "./pages/runs.js";
import "./pages/run.js";
import "./pages/schedules.js";
import "./pages/schedule.js";
import "./pages/services.js";
import "./pages/service.js";
import "./pages/events.js";
import "./pages/system.js";
import { html, render } from "./lib.js";
import { listenToKeys } from "./keyboard.js";
import { startLive, togglePause } from "./live.js";
import { whoAmI } from "./session.js";
import { Shell } from "./shell.js";
import { switchTheme } from "./theme_switch.js";

listenToKeys({ t: switchTheme, p: togglePause });
render(html`<${Shell} />`, document.getElementById("app"));
startLive();
whoAmI().catch(() => { /* the shell shows that nobody answers */ });
