/** Pauses, back-off, and ends of waits. */

/** The longest wait of a timer of the platform. */
export const MAX_TIMER_MS = 2 ** 31 - 1;

/** Milliseconds on a clock that never goes back. */
export function nowMs(): number {
  return performance.now();
}

/** Shorten a wait by up to a half, so that callers spread out. */
export function jittered(waitMs: number): number {
  return waitMs * (0.5 + Math.random() / 2);
}

/** Exponential back-off with jitter for a caller that retries without end. */
export class RetryBackoff {
  private nextMs: number;

  constructor(
    private readonly firstMs = 100,
    private readonly mostMs = 10_000,
  ) {
    this.nextMs = firstMs;
  }

  waitMs(atLeastMs = 0): number {
    const fullMs = Math.max(this.nextMs, atLeastMs);
    this.nextMs = Math.min(this.nextMs * 2, this.mostMs);
    return jittered(fullMs);
  }

  reset(): void {
    this.nextMs = this.firstMs;
  }
}

/** Wait for a time; rejects with the reason of the signal as soon as that is aborted. */
export function pause(waitMs: number, signal?: AbortSignal): Promise<void> {
  return new Promise((resolve, reject) => {
    if (signal?.aborted) {
      reject(signal.reason);
      return;
    }
    const abort = (): void => {
      clearTimeout(timer);
      reject(signal?.reason);
    };
    const timer = setTimeout(
      () => {
        signal?.removeEventListener("abort", abort);
        resolve();
      },
      Math.min(Math.max(0, waitMs), MAX_TIMER_MS),
    );
    signal?.addEventListener("abort", abort, { once: true });
  });
}

/** A signal that other code waits for: `set` wakes it, `wait` returns at once if it is set. */
export class Flag {
  private waiting: (() => void)[] = [];
  private value = false;

  get isSet(): boolean {
    return this.value;
  }

  set(): void {
    this.value = true;
    const waiting = this.waiting;
    this.waiting = [];
    for (const wake of waiting) {
      wake();
    }
  }

  clear(): void {
    this.value = false;
  }

  /** Wait until the flag is set, or for a time; resolves to whether it is set. */
  wait(timeoutMs?: number): Promise<boolean> {
    if (this.value) {
      return Promise.resolve(true);
    }
    return new Promise((resolve) => {
      let timer: NodeJS.Timeout | undefined;
      const wake = (): void => {
        clearTimeout(timer);
        resolve(true);
      };
      if (timeoutMs !== undefined) {
        timer = setTimeout(
          () => {
            this.waiting = this.waiting.filter((one) => one !== wake);
            resolve(false);
          },
          Math.min(Math.max(0, timeoutMs), MAX_TIMER_MS),
        );
      }
      this.waiting.push(wake);
    });
  }
}
