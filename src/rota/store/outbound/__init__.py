"""What the coordinator sends to other servers: webhooks and their deliveries."""
