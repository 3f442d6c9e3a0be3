"""The working set: the part of the store that the writer holds in memory."""
