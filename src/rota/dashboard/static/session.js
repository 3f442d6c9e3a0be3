// The current caller and its scopes. Buttons whose request would be refused are hidden.
import { signal } from "./lib.js";
import { get, needsLogin, post } from "./api.js";

export const me = signal(null); // { name, scopes, actions, is_token } once known

export const may = (action) => Boolean(me.value?.actions.includes(action));

export async function whoAmI() {
  try {
    me.value = await get("/api/me");
    needsLogin.value = false;
  } catch (problem) {
    if (problem.status !== 401) throw problem;
  }
}

export async function login(token) {
  me.value = await post("/api/login", { token });
  needsLogin.value = false;
}

export async function logout() {
  await post("/api/logout");
  me.value = null;
  await whoAmI();
}
