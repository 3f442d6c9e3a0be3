"""Webhooks inside a batch, and the delivery of events by the leader."""
