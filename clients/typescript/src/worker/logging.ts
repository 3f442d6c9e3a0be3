/** Log events: stable names with fields, so that people can alert on them. */

export type LogFields = Record<string, string | number | boolean | undefined>;

export interface Logger {
  debug(event: string, fields: LogFields): void;
  info(event: string, fields: LogFields): void;
  warn(event: string, fields: LogFields): void;
  error(event: string, fields: LogFields): void;
}

/** Writes one JSON object a line to standard error, without `debug`. */
export const DEFAULT_LOGGER: Logger = {
  debug: () => undefined,
  info: (event, fields) => write("info", event, fields),
  warn: (event, fields) => write("warning", event, fields),
  error: (event, fields) => write("error", event, fields),
};

function write(level: string, event: string, fields: LogFields): void {
  const timestamp = new Date().toISOString();
  process.stderr.write(`${JSON.stringify({ timestamp, level, event, ...fields })}\n`);
}
