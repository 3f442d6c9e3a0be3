"""PostgreSQL: one database for several coordinators.

Theory of operation. A write takes the advisory lock of the schema, so writes of all coordinators
happen one after the other, and each sees the changes of the one before. That is what SQLite does,
so a batch leads to the same decisions on both. The sequence `turn` is the change counter. Every
commit that changed something raises it, so the next holder of the lock sees whether a peer wrote.

Behind a pooler, a session keeps nothing between two transactions: the message that begins a
transaction also sets what the transaction needs. So PgBouncer can pool transactions. On a direct
connection the server also keeps prepared statements: planning is half the cost of a small one.

Every statement has a time limit on both sides of the connection. A connection that is lost before
the commit was sent has changed nothing. If it is lost while the commit is under way, the outcome is
unknown, and the error states it.
"""
