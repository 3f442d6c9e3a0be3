"""Functions under crashes, repeated reports and any order of events.

`world` plays the worker of a script for the reducer alone. `crashes` runs the real coordinator and
the real host of the SDK in virtual time (`processes`), with functions that are drawn
(`durable_scripts`), and holds what they do against what the store has (`ledger`).
"""
