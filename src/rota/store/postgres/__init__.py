"""PostgreSQL: one database for several coordinators.

Theory of operation. One coordinator leads, and only its handle writes, as on SQLite. Every write
begins with a check of its epoch, under a lock that a takeover takes exclusively: whatever an old
leader believes, it cannot commit after a takeover (`elections.py`).

A write takes one round trip. On a direct connection the session keeps its settings and prepared
statements, and the beginning of a transaction, the fence, the statements whose results are not
needed and the commit travel together (libpq's pipeline mode). Each read in a write takes one more.

Behind a pooler, a session keeps nothing between two transactions: the message that begins a
transaction also sets what the transaction needs, and each statement is waited for. So PgBouncer can
pool transactions.

Every statement has a time limit on both sides of the connection. A connection that is lost before
the commit was sent has changed nothing. If it is lost while the commit is under way, the outcome is
unknown, and the error states it. The next write first shuts the lost connection out.
"""
