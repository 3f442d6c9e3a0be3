// The login form. The browser stores the token in a cookie that no script can read.
import { html, useState } from "./lib.js";
import { login } from "./session.js";

export function Login() {
  const [problem, setProblem] = useState(null);
  const [isBusy, setBusy] = useState(false);
  const submit = async (event) => {
    event.preventDefault();
    const token = new FormData(event.target).get("token").trim();
    setBusy(true);
    try { await login(token); } catch (error) { setProblem(error.detail); } finally { setBusy(false); }
  };
  return html`<main class="login"><form onSubmit=${submit}>
    <h1>Rota</h1>
    <p>This coordinator needs a token. Create one with <code>rota token create --scope read</code>.</p>
    <label for="token">Token</label>
    <input id="token" name="token" type="password" autocomplete="current-password" placeholder="rota_…" autofocus required spellcheck=${false} />
    ${problem && html`<p class="problem" role="alert">${problem}</p>`}
    <button class="button primary" disabled=${isBusy}>log in</button>
  </form></main>`;
}
