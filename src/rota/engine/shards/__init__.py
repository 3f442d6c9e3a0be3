"""Executes the commands of a batch that concern services and their shards."""
