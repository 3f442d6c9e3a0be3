"""The worker that is handed shards of a service: `worker` is what users start."""
