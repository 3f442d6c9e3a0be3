"""Gateways translate between a wire and commands; they hold no rules."""
