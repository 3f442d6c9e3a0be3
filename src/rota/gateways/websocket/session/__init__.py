"""Sessions over WebSocket: envelopes, workers and subscriptions."""
