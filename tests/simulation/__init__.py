"""A whole world in one thread: does every promise hold, whatever goes wrong, and when?

Theory of operation. One real coordinator on a real SQLite file, with its duties, serves simulated
workers and clients over a simulated network. Everything runs on one event loop whose time jumps
from timer to timer (`loop`), and every accident is drawn from dice that hang on one seed: lost,
late and doubled messages (`network`); crashes before, after and between commits, pauses, full
disks and clock jumps (`chaos`, `server`, `database`, `clock`); workers that die, sleep, come back
as zombies and report under old fences (`workers`). Which faults, and how many, is a `profile`.

After each commit the store is read by SQL of the simulation's own (`picture`), held against what
must always be true (`invariants`) and against what was promised (`promises`). Each answer is held
against what the store contained between the arrival of its call and its leaving (`answers`, with
the `book` of calls and the `observer` of commits). At the end the faults heal, and all that was
accepted must come to its end within a bounded time (`world`).

A simulation that notices nothing proves nothing: `mutants` break one rule each on purpose, and
each must be noticed.
"""
