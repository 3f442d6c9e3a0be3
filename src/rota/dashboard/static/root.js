// The path that the dashboard is served under: empty, or "/rota" inside another application.
export const root = new URL("../..", import.meta.url).pathname.replace(/\/$/, "");

/** Where programs reach the API. */
export const address = location.origin + root;
