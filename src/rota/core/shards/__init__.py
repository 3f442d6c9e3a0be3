"""Shards of services: which member owns which shard, as pure rules."""
