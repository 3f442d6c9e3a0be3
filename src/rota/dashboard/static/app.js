// The dashboard: pages.js lists the pages, and the shell shows the one that the address means.
// To add a page see README.md beside this file: one module in pages/, and its line in pages.js.
import "./pages.js";
import { html, render } from "./lib.js";
import { switchTimes } from "./clock.js";
import { listenToKeys } from "./keyboard.js";
import { startLive, togglePause } from "./live.js";
import { whoAmI } from "./session.js";
import { Shell } from "./shell.js";
import { switchTheme } from "./theme_switch.js";

listenToKeys({ t: switchTheme, p: togglePause, c: switchTimes });
render(html`<${Shell} />`, document.getElementById("app"));
startLive();
whoAmI().catch(() => { /* the shell shows that nobody answers */ });
