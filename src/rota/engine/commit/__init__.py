"""The path of a batch: load, decide, write, commit, reply, notify."""
