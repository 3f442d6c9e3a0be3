"""Commands that look at the health and the state of a coordinator."""
