"""PostgreSQL: one database for as many coordinators as there are.

Theory of operation. A write takes the advisory lock of the schema, so writes of all coordinators
happen one after the other, and each decides on what the one before it has left. That is what
SQLite does too, so a batch leads to the same decisions on both. Beside the lock stands the
sequence `turn`, raised with every commit that changed something: who takes the lock sees whether
somebody else has written since.

Behind a pooler nothing is kept in a session between two transactions, so that PgBouncer may hand
them out one by one: what a transaction needs is set in the same message that begins it. Where the
server itself is at the other end, it also keeps the plans of statements: planning is half of what
a small one costs.

Every statement has a time limit on both sides of the wire. A connection that breaks before the
commit was sent has changed nothing; one that breaks while it was under way has done nobody knows
what, and says so.
"""
