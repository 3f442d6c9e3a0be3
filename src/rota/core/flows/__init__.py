"""Flow control: limits on keys, and fairness between the tenants of a queue."""
