/**
 * Whether the coordinator answers this worker.
 *
 * Calls, heartbeats and the stream fail separately and often while a coordinator is away. Its loss is
 * logged once, with a reminder each minute, and so is its return.
 */
import { Unavailable } from "../errors.js";
import { nowMs } from "../timing.js";
import type { Logger } from "./logging.js";
import { messageOf } from "./outcomes.js";

const REMINDER_MS = 60_000;

export class CoordinatorContact {
  private lostAt: number | undefined;
  private loggedAt = 0;

  constructor(private readonly log: Logger) {}

  noteFailure(event: string, error: unknown): void {
    const reason = messageOf(error);
    if (error instanceof Unavailable) {
      this.noteLost(reason);
      this.log.debug(event, { reason });
    } else {
      this.log.warn(event, { reason });
    }
  }

  noteLost(reason: string): void {
    const now = nowMs();
    const isNew = this.lostAt === undefined;
    this.lostAt ??= now;
    if (!isNew && now - this.loggedAt < REMINDER_MS) {
      return;
    }
    this.loggedAt = now;
    this.log.warn("coordinator_unreachable", {
      reason,
      ...(isNew
        ? { hint: "trying again until it answers" }
        : { for_s: Math.round((now - this.lostAt) / 1000) }),
    });
  }

  noteAnswer(): void {
    if (this.lostAt !== undefined) {
      const afterS = Math.round((nowMs() - this.lostAt) / 100) / 10;
      this.lostAt = undefined;
      this.log.info("coordinator_reached", { after_s: afterS });
    }
  }
}
