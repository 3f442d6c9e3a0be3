// A peer in another language: what stands on stdin is sent, what comes is written to stdout.
// A line is a JSON text: {"text": "…"}, {"binary": "base64"} or {"close": 1000}.
import { createRequire } from "node:module";
import { createInterface } from "node:readline";

const [folder, address, ...protocols] = process.argv.slice(2);
const WebSocket = createRequire(`${folder}/package.json`)("ws");

const socket = new WebSocket(address, protocols);
const write = (line) => process.stdout.write(`${JSON.stringify(line)}\n`);

socket.on("open", () => write({ open: socket.protocol }));
socket.on("message", (data, isBinary) =>
  write(isBinary ? { binary: data.toString("base64") } : { text: data.toString() }),
);
socket.on("close", (code, reason) => {
  write({ closed: code, reason: reason.toString() });
  process.exit(0);
});
socket.on("error", (error) => write({ error: error.message }));

createInterface({ input: process.stdin }).on("line", (line) => {
  const said = JSON.parse(line);
  if ("close" in said) socket.close(said.close);
  else socket.send("binary" in said ? Buffer.from(said.binary, "base64") : said.text);
});
