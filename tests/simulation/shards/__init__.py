"""Shards in virtual time: does every promise about them hold, whatever goes wrong, and when?

Theory of operation. The real rules on both sides, `decide` of the coordinator and `Holding` of its
members, talk over a simulated network. Both are pure, so there is no event loop and no store: a
heap of moments (`timeline`) is all the time there is, and a schedule of minutes takes some
milliseconds. All accidents are drawn from dice that hang on one seed: messages lost, doubled, late
and out of order (`network`); members that die, sleep, are cut off, drain, leave, dawdle and come
back (`members`, `old_members`, `faults`); clocks of different speeds; a coordinator that dies
before a commit, after it, and between, and sleeps (`coordinator`).

What was committed is folded into rows by a `ledger` of the simulation's own, which is all that a
coordinator has left when it comes back, and which holds each decision against the promises: one
owner an epoch, epochs and generations that rise. Members send effects under the epochs they know;
none that is stale may be accepted. After whatever a member does, no other may be acting on the same
shard. At the end the faults heal, and soon everything is owned, in balance, and acted on (`world`).

A simulation that notices nothing proves nothing: `mutants` break one rule each on purpose.
"""
