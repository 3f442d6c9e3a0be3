"""Every limit of the contract, with its name, its number and its row in the reference.

Limits that an operator may want to move are settings; these are those of the contract itself.
"""

MAX_TASKS_PER_SUBMISSION = 10_000  # tasks in one submission
MAX_RESULTS_PER_REPORT = 10_000  # results, progress items, or logs of attempts, in one report
MAX_LEASES_PER_CALL = 10_000  # tasks that one lease call may ask for
MAX_PAGE = 1_000  # items of a list in one answer
DEFAULT_PAGE = 100  # items of a list by default
MAX_BULK_STEP = 1_000  # tasks changed by one transaction of a bulk cancel or retry

MAX_NAME_LENGTH = 200  # characters of any name, label, capability or worker id
MAX_KEY_LENGTH = 500  # characters of an idempotency key
MAX_KEY_BYTES = 2_500  # of an idempotency key and the name of its queue together, in UTF-8
MAX_BATCH_SIZE = 10_000  # tasks that one call of a batch handler gets
MAX_BATCH_WAIT_MS = 60_000  # that a worker waits for a batch to be full
MAX_UNIQUE_FIELDS = 8  # fields of a task that may make up the key by which it is unique
MAX_REQUIRES = 32  # capabilities that one task may require
MAX_LABELS = 32  # labels on one task or worker
MAX_CAPABILITIES = 256  # capabilities of one worker
MAX_WORKER_NAMES = 1_000  # task names or queues one worker may list
MAX_LANES = 10_000  # distinct (queue, name, requires) sets of the tasks that are kept
MAX_LANES_PER_QUEUE = 1_000  # distinct (name, requires) sets of the tasks of one queue
MAX_NEW_LANES_PER_SUBMISSION = 1_000  # (queue, name, requires) sets that one submission may add
LANE_SWEEP_INTERVAL_MS = 60_000  # between two searches for lanes without tasks, while room is short

MAX_LIMIT_KEY_LENGTH = 300  # characters of the key of a limit, or of a tenant
MAX_LIMITS_PER_TASK = 4  # concurrency limits of one task, and as many rate limits
MAX_LIMIT_KEYS = 200_000  # keys of limits that are known at once; idle ones are forgotten
MAX_LIMIT_KEYS_PER_BINDING = 25_000  # of those, that bound tokens of one binding have named first
MAX_DECLARING_NAMES = 32  # task names whose last value for one limit is remembered
MAX_FLOWS = 400_000  # distinct (lane, tenant, limits) sets of live tasks
MAX_CONCURRENCY = 1_000_000  # tasks that a concurrency limit may let run at once
MAX_RATE = 1_000_000  # starts that a rate may allow in its period, its burst, or one start's cost
MAX_WINDOW_RATE = 1_000  # starts that a rate of mode `window` may allow in its period
MAX_RATE_PERIOD_MS = 366 * 24 * 3600 * 1000  # of a rate
MAX_RATE_CLOSED_MS = 24 * 3600 * 1000  # that a handler may close the rates of its task for
MAX_QUEUED = 1_000_000_000  # that `max_queued` of a queue may be
MAX_WEIGHTS = 1_000  # tenants of a queue with a weight of their own
MIN_TENANT_WEIGHT = 0.01  # of a tenant; 1 is the usual one
MAX_TENANT_WEIGHT = 100  # of a tenant
MAX_AGING_MS = 24 * 3600 * 1000  # that one point of priority may be worth
MAX_TARGET_WAIT_MS = 31 * 24 * 3600 * 1000  # that `target_wait_ms` of a queue may be
MAX_TENANTS_SHOWN = 100  # tenants of a queue in one answer, those with the most tasks

MAX_PRIORITY = 1_000_000  # either way from 0
MAX_ATTEMPTS = 1_000  # attempts that one task may be given
MAX_DELAY_MS = 10 * 366 * 24 * 3600 * 1000  # of a delay, a back-off, a snooze, or a time to start
MAX_TIMEOUT_MS = 366 * 24 * 3600 * 1000  # time that one attempt may be given
MAX_WAIT_MS = 60_000  # of one long poll; ask again for more
MAX_JSON_DEPTH = 64  # levels of nesting in a payload, result or progress value
MAX_ERROR_LENGTH = 20_000  # of a type or message; longer ones are cut, never refused
MAX_REASON_LENGTH = 1_000  # characters of the reason with which failed tasks are acknowledged
MAX_LOGGED_ATTEMPTS = 50  # ended attempts a task remembers, the newest ones
MAX_LOG_LINES = 1_000  # lines that are kept of the log of one attempt
MAX_LOG_BYTES = 256 * 1024  # of those lines
RESERVED_LOG_PART = 8  # one part in so many of both is for lines of level warning and above
MAX_LOG_MESSAGE_BYTES = 8 * 1024  # of the message of a log line; the middle of a longer one is cut
MAX_LOG_FIELDS_BYTES = 2 * 1024  # of the fields of a log line, as JSON; more are left out
MAX_LOG_TIME_MS = 32_503_680_000_000  # the latest time of a log line: the year 3000
MAX_LOGS_PER_TASK = 20  # attempts of a task whose logs are kept, the newest ones
MAX_LOG_PAGE_BYTES = 1024 * 1024  # of log lines in one answer; at least one is in it
MAX_LATE_LOG_MS = 10_000  # after the end of an attempt, until when its worker may send lines of it
MAX_LOG_LINES_PER_S = 2_000  # that a worker sends of all its attempts; the others are counted
MAX_WAITING_LOG_BYTES = 4 * 1024 * 1024  # of lines that wait in a worker; the others are counted
LOG_INTERVAL_MS = 500  # between two reports of log lines by a worker, unless an attempt ends
MAX_ARTIFACTS_PER_ATTEMPT = 1_000  # named blobs that one attempt of a task may attach
MAX_SIGNAL_KEYS = 1_000  # keys of signals that a run remembers, the newest
MAX_BRANCHES_ADDED = 1_000  # branches that one call adds to an open scope
MAX_TRIGGERS = 1_000_000  # signals that one node takes that waits again after each
MAX_WAIT_TEXT = 500  # characters of an approval's title in lists; longer ones are cut
MAX_KEPT_SIGNALS = 1_000  # signals that a run keeps until something waits for them
MAX_DEFINITION_BYTES = 1024 * 1024  # of a workflow's definition; 413 beyond
MAX_NODES = 1_000  # nodes of one workflow
MAX_TRANSITIONS = 5_000  # transitions of one workflow
MAX_INLINE_DEFINITION_BYTES = 16 * 1024  # of a definition that is read without its own process
MAX_DEFINITION_PROCESSES = 2  # processes that read large definitions at once
MAX_DEFINITIONS_WAITING = 32  # definitions that are read or wait to be read; 429 beyond
MAX_DEFINITIONS_PER_TOKEN = 8  # of those that come with one token; 429 beyond
DEFINITION_TIMEOUT_MS = 20_000  # time that the process for one definition may take
MAX_EXPRESSION_LENGTH = 4_096  # characters of a CEL expression
MAX_COMPREHENSIONS = 8  # of `map`, `filter`, `all`, `exists` and `exists_one` in one expression
MAX_COMPREHENSION_DEPTH = 4  # comprehensions inside each other
MAX_EXPRESSION_STEPS = 2_000_000  # of one evaluation: operations, items copied, 32 bytes of a text
FREE_EXPRESSION_STEPS = 1_000  # of each evaluation that do not count for its decision
STEPS_PER_SLICE = 250  # nodes and branches that a run starts at once; the rest follows in slices
EXPRESSION_STEPS_PER_SLICE = 1_000_000  # after which a run goes on in the next slice
MAX_DECISION_STEPS = 10_000_000  # of all evaluations that follow from one event of a run
MAX_VALUE_BYTES = 64 * 1024 * 1024  # of JSON that one expression, or one mapping, gives
MAX_SCHEMA_PARTS = 5_000  # schemas in one JSON Schema
MAX_SCHEMA_CHECKS = 10_000  # schemas that one value may be held against by one JSON Schema
MAX_SCHEMA_STEPS = 5_000_000  # those schemas, times the parts of the value
MAX_PATTERN_BYTES = 32 * 1024  # of a compiled pattern in a JSON Schema
MAX_OPERATIONS = 10_000  # operations of a function since its last restart; then its run fails
OPERATIONS_WARNING = 5_000  # operations of a function after which an event warns
MAX_RESULT_BYTES = 1024 * 1024  # of the result of one operation; the SDK makes an artifact of more
MAX_MAP_ITEMS = 10_000  # items of one `map` of a function
MAX_STREAM_VALUES = 10_000  # values that a run may append to its streams; then it fails
MAX_INLINE_LOG_BYTES = 32 * 1024  # of a function's log that comes with its task; else it is read
MAX_OPERATIONS_PAGE_BYTES = 1024 * 1024  # of log entries in one answer; at least one is in it
MAX_CONCURRENT_TASKS = 100_000  # tasks that one worker may hold at once

MIN_HEARTBEAT_INTERVAL_MS = 100  # between two beats of a worker, at the least
MAX_HEARTBEAT_INTERVAL_MS = 24 * 3600 * 1000  # between two beats of a worker, at the most

MAX_SERVICES = 10_000  # services that have ever had a member or a configuration
MAX_MEMBERS = 10_000  # workers of one service
MAX_SHARDS = 200_000  # shards of one service
MAX_WEIGHT = 1_000_000  # of a member, in thousandths: a thousand times the usual one

MAX_SCHEDULES = 10_000  # schedules of all queues
MAX_SCHEDULE_BYTES = 128 * 1024  # of one schedule, with the payload of its task
MAX_CRONS = 20  # cron expressions of one schedule
MAX_CRON_LENGTH = 300  # characters of a cron expression
MAX_EXCLUDES = 100  # dates and cron expressions that one schedule excludes
MAX_SCHEDULE_MOMENTS = 1_000  # single times (`at_ms`) of one schedule
MAX_SCHEDULE_TIME_MS = 32_503_680_000_000  # the latest time that a schedule may name: the year 3000
MIN_EVERY_MS = 1_000  # between two times of a schedule with an interval, at the least
MAX_CATCH_UP_MS = 31 * 24 * 3600 * 1000  # how late a missed time of a schedule may fire
MAX_CAUGHT_UP = 1_000  # missed times that fire in a row with `missed: all`; the rest are skipped
MAX_JITTER_MS = 24 * 3600 * 1000  # by which a firing of a schedule may be delayed
MAX_WAITING_FIRINGS = 1_000  # firings of one schedule that wait for an earlier one to end
MAX_KEPT_FIRINGS = 100  # rows in the history of one schedule, the newest ones
MAX_BACKFILL = 1_000  # times that one backfill may fire
MAX_NEXT_TIMES = 100  # times that one call may ask to see
SCHEDULE_ON_TIME_MS = 30_000  # a firing that is later than this was missed

MAX_EVENT_STREAMS = 1_000  # streams of events that are open at once
MAX_EVENTS_BEHIND = 10_000  # events that wait for a stream; one that is further behind is ended
MAX_EVENT_TEXT = 1_000  # characters of an error in an event; the task or run has it whole
MAX_SINGLE_EVENTS = 10  # tasks of a queue with an event each in one commit; more share one

MAX_WEBHOOKS = 100  # webhooks of one coordinator
MAX_WEBHOOK_EVENTS = 50  # patterns of events, of queues or of workflows of one webhook
MAX_PENDING_DELIVERIES = 1_000  # of one webhook that wait; later events wait in the event log
MAX_ENDED_DELIVERIES = 50  # ended deliveries of one webhook that are kept, the newest ones
MAX_DELIVERY_ATTEMPTS = 16  # requests for one delivery; with the pauses between them about 8 hours
MAX_DELIVERY_PAUSE_MS = 3_600_000  # between two attempts of one delivery
MAX_DELIVERIES_AT_ONCE = 16  # requests of all webhooks under way
MAX_DELIVERIES_OF_WEBHOOK = 4  # of those, of one webhook; 1 while it fails
WEBHOOK_TIMEOUT_MS = 15_000  # for one request of a webhook, with the lookup of its name
WEBHOOK_DISABLED_AFTER_MS = 24 * 3600 * 1000  # of failures alone until a webhook is disabled
MAX_WEBHOOK_BODY_BYTES = 64 * 1024  # of the body of a delivery; longer data is left out
MAX_OUTBOUND_URL_LENGTH = 2_000  # characters of a URL that the coordinator calls
MAX_OUTBOUND_CONNECTIONS = 128  # requests of the coordinator to other servers under way
MAX_OUTBOUND_OF_HOST = 32  # of those, to one host and port
MAX_OUTBOUND_HEAD_BYTES = 64 * 1024  # of the head of an answer to such a request
MIN_SECRET_BYTES = 24  # of a secret that signs requests
MAX_SECRET_BYTES = 64  # of a secret that signs requests
WEBHOOK_TOLERANCE_MS = 300_000  # by which the time of a signed request may differ, by default

MAX_ARTIFACT_ROW_BYTES = 64 * 1024 * 1024  # of an artifact where several coordinators share a store

MAX_LOCK_WAITERS = 1_000  # callers in line for one lock
LOCK_PLACE_KEPT_MS = 5_000  # time for which the place in line of a caller that is away is kept
MAX_LOCK_TTL_MS = 24 * 3600 * 1000  # time for which a lock is given at once; renew it for more
MAX_MEMORY_TTL_MS = 10 * 366 * 24 * 3600 * 1000  # time for which a value is kept, if one is given
MAX_MEMORY_PAGE_BYTES = 4 * 1024 * 1024  # of values in one page of keys; at least one is on it

MAX_SESSION_NEWS = 10_000  # ended tasks that wait until their session comes; the oldest go first
MAX_SESSION_WAITS = 1_000  # answers that one socket may wait for while it sends more
MAX_SOCKET_FRAGMENTS = 32_768  # frames that one message on a WebSocket may be cut into
MAX_SOCKET_CONTROLS = 1_000  # pings and pongs that a WebSocket may bring within a second
MAX_SOCKET_MESSAGE_MS = 120_000  # time from the first byte of a message on a WebSocket to its last
MAX_SOCKETS_PARTIAL_BYTES = 256 * 1024 * 1024  # of messages on all WebSockets that have only begun
MAX_SOCKET_UNREAD_MS = 30_000  # time for which a WebSocket's peer may read nothing of what waits
MAX_SUBSCRIPTIONS = 16  # wishes for events that one socket may have at once

MAX_HEAD_BYTES = 64 * 1024  # of a request's head: the request line and the header fields
MAX_HEAD_FIELDS = 100  # header fields of one request
MAX_TARGET_BYTES = 16 * 1024  # of a request's target: its path and query
MAX_HOST_LENGTH = 300  # characters of a Host header that can name a coordinator on loopback
MAX_TRAILER_BYTES = 16 * 1024  # chunk extensions and trailer fields of one request, together
HEAD_TIMEOUT_MS = 15_000  # for a request's head, from its first byte; and for a first byte to come
BODY_TIMEOUT_MS = 60_000  # for a request's body; for each piece of a body that is streamed
IDLE_CONNECTION_MS = 75_000  # that an HTTP connection is kept between two requests
UNREAD_ANSWER_MS = 60_000  # that a client may go without reading any of an answer
TLS_HANDSHAKE_MS = 15_000  # for a TLS handshake, from the connection on
MAX_TLS_HANDSHAKES = 8_192  # connections that are silent or in their handshake, with TLS
MAX_TLS_HANDSHAKES_OF_ADDRESS = 2_048  # of those, from one IPv4 address or one IPv6 /64 network

# Shares: what one caller leaves to the others, and what is kept for operators.
LEFT_PART = 8  # one caller leaves one part in so many of each bound to others
LONG_POLLS_LEFT_PART = 4  # of long polls it leaves one part in so many of `max_connections`
OPERATOR_PART = 16  # one part in so many of each bound is kept for unbound admin callers
MAX_ANONYMOUS_REQUESTS = 1_024  # logins and logouts under way at once, which need no token
MAX_ANONYMOUS_REQUESTS_OF_ADDRESS = 64  # of those, from one IPv4 address or one IPv6 /64 network
MAX_LOGIN_BYTES = 4 * 1024  # of the body of a login or logout
UNCOUNTED_BODY_BYTES = 16 * 1024  # a body of up to so many does not count towards max_bodies_bytes
MAX_SOCKET_SUBSCRIPTIONS = 10_000  # subscriptions of all sockets at once
MAX_SOCKET_CALLS = 1_000  # messages of one socket that wait for their commit; it is not read then
MAX_SOCKET_CALL_BYTES = 16 * 1024 * 1024  # of those messages; beyond, too, it is not read
MAX_SOCKET_WAITS = 100_000  # answers that all sockets wait for at once
