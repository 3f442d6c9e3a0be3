"""What is the most of everything? Each limit has a name, a number, and a row in the reference.

Limits that an operator may want to move are settings; these are those of the contract itself.
"""

MAX_TASKS_PER_SUBMISSION = 10_000  # tasks in one submission
MAX_RESULTS_PER_REPORT = 10_000  # results, or progress items, in one report
MAX_LEASES_PER_CALL = 10_000  # tasks that one lease call may ask for
MAX_PAGE = 1_000  # items of a list in one answer
DEFAULT_PAGE = 100  # items of a list when the caller does not say
MAX_BULK_STEP = 1_000  # tasks changed by one transaction of a bulk cancel or retry

MAX_NAME_LENGTH = 200  # characters of any name, label, capability or worker id
MAX_KEY_LENGTH = 500  # characters of an idempotency key
MAX_REQUIRES = 32  # capabilities that one task may require
MAX_LABELS = 32  # labels on one task or worker
MAX_CAPABILITIES = 256  # capabilities of one worker
MAX_WORKER_NAMES = 1_000  # task names or queues one worker may list
MAX_LANES = 10_000  # distinct (queue, name, requires) sets of the tasks that are kept

MAX_PRIORITY = 1_000_000  # either way from 0
MAX_ATTEMPTS = 1_000  # attempts that one task may be given
MAX_DELAY_MS = 10 * 366 * 24 * 3600 * 1000  # of a delay, a back-off, a snooze, or a time to start
MAX_TIMEOUT_MS = 366 * 24 * 3600 * 1000  # time that one attempt may be given
MAX_WAIT_MS = 60_000  # of one long poll; ask again for more
MAX_JSON_DEPTH = 64  # levels of nesting in a payload, result or progress value
MAX_ERROR_LENGTH = 20_000  # of a type or message; longer ones are cut, never refused
MAX_LOGGED_ATTEMPTS = 50  # ended attempts a task remembers, the newest ones
MAX_ARTIFACTS_PER_ATTEMPT = 1_000  # named blobs that one attempt of a task may attach
MAX_KEPT_SIGNALS = 1_000  # signals that a run keeps until something waits for them
MAX_CONCURRENT_TASKS = 100_000  # tasks that one worker may hold at once

MIN_HEARTBEAT_INTERVAL_MS = 100  # between two beats of a worker, at the least
MAX_HEARTBEAT_INTERVAL_MS = 24 * 3600 * 1000  # between two beats of a worker, at the most

MAX_SERVICES = 10_000  # services that have ever had a member or an operator's word
MAX_MEMBERS = 10_000  # workers of one service
MAX_SHARDS = 200_000  # shards of one service
MAX_WEIGHT = 1_000_000  # of a member, in thousandths: a thousand times the usual one

MAX_EVENT_STREAMS = 1_000  # streams of events that are open at once
MAX_EVENTS_BEHIND = 10_000  # events that wait for a stream; one that is further behind is ended
MAX_EVENT_TEXT = 1_000  # characters of an error in an event; the task or run has it whole
MAX_SINGLE_EVENTS = 10  # tasks of a queue that one commit tells of singly; more are told together

MAX_ARTIFACT_ROW_BYTES = 64 * 1024 * 1024  # of an artifact where several coordinators share a store

MAX_LOCK_WAITERS = 1_000  # callers in line for one lock
LOCK_PLACE_KEPT_MS = 5_000  # time for which the place in line of a caller that is away is kept
MAX_LOCK_TTL_MS = 24 * 3600 * 1000  # time for which a lock is given at once; renew it for more
MAX_MEMORY_TTL_MS = 10 * 366 * 24 * 3600 * 1000  # time for which a value is kept, if any is said
MAX_MEMORY_PAGE_BYTES = 4 * 1024 * 1024  # of values in one page of keys; at least one is on it

MAX_SESSION_NEWS = 10_000  # ended tasks that wait until their session comes; the oldest go first
MAX_SESSION_WAITS = 1_000  # answers that one socket may wait for beside what it says next
MAX_SUBSCRIPTIONS = 16  # wishes for events that one socket may have at once
