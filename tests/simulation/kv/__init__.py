"""Locks and values in virtual time: has a fence one owner, and is no change lost, come what may?

Theory of operation. The real rules, `rota.core.locks` and `rota.core.kv` on the coordinator's
side and `Tenure` on its clients', talk over the simulated network of the shards: messages are lost,
doubled, late and out of order. Clients die, sleep between a look at their lock and what they do
under it, lose patience and ask again. The coordinator dies before a commit and after it; what was
committed (`ledger`) is all that it has left. All of it hangs on one seed.

Whatever is done under a lock goes to a resource that refuses a lower fence than it has seen. It
must never be told of one fence by two, nor refuse the holder of the lock. No two clients may
believe at one moment that they have it. Beside, clients count up a value, each on condition of what
it saw, and delete it so that it begins again: no addition is lost, and none is made to another
value than was seen. At the end the faults heal, and everybody has the lock soon.

A simulation that notices nothing proves nothing: `mutants` break one rule each on purpose.
"""
