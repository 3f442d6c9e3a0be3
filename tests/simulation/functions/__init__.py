"""Functions under crashes, repeated reports and any order of events."""
