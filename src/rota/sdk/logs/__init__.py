"""Logs of handlers: what they log is kept with their attempts."""
