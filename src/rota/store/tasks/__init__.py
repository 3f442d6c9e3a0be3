"""Tasks, lanes, queues and the inbox in the store."""
