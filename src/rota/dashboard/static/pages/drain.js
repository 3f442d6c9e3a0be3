// Draining, the same on every page: of workers, and of the members of services.
import { act, confirm } from "../dialog.js";
import { html } from "../lib.js";
import { Badge, Button } from "../ui.js";

const QUESTION = { text: "It finishes or hands over what it holds, and gets nothing new until it is resumed.", label: "drain" };

/** The button that drains, or resumes; `set` sends the change. */
export function Drain({ name, isDraining, set, reload, size = "" }) {
  const change = (draining, said) => act(() => set(draining).finally(reload), said);
  const drain = async () => { if (await confirm({ title: `Drain ${name}?`, ...QUESTION })) await change(true, `${name} is draining`); };
  return isDraining ? html`<${Button} kind=${`primary ${size}`} onClick=${() => change(false, `${name} is resumed`)}>resume<//>` : html`<${Button} kind=${size} onClick=${drain}>drain<//>`;
}

/** Its health, and beside it the state that an operator has set. */
export const Health = ({ health, state }) => html`<${Badge} state=${health} />${state !== "active" && html` <${Badge} state=${state} />`}`;
