"""Who owns which shard of a service: the rules, as pure as all of the core."""
