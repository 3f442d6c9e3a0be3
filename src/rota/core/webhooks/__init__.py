"""Webhooks: which events are delivered where, in which form, and when a delivery is tried again."""
