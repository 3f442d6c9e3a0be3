"""The dashboard: what people look at when something is stuck, and how it reaches a browser."""
