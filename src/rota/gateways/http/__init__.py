"""The HTTP gateway: server, routing, resources, views and metrics."""
