"""The worker's stream over WebSocket."""
