// The switch between light and dark. The system decides until the user chooses.
import { signal } from "./lib.js";

const system = matchMedia("(prefers-color-scheme: dark)");
const shown = () => document.documentElement.dataset.theme || (system.matches ? "dark" : "light");

export const theme = signal(shown());
system.addEventListener("change", () => { theme.value = shown(); });

export function switchTheme() {
  const wanted = shown() === "dark" ? "light" : "dark";
  document.documentElement.dataset.theme = wanted;
  try { localStorage.setItem("rota.theme", wanted); } catch { /* it lasts for this page, then */ }
  theme.value = wanted;
}
