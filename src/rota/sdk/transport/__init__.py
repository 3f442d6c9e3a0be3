"""How a request reaches a coordinator: connection pools, endpoints and failover."""
