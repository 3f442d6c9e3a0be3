"""Commands for services, their shards and keys."""
