"""The delivery of events to webhooks by the leader."""
