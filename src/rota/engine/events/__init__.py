"""The public event log: records events, reads them, and streams them to subscribers."""
