"""Sessions over WebSocket: the envelopes of old clients, and the fast path for workers."""
