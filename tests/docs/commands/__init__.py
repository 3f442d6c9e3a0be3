"""The commands of the pages: found, filled in, and run beside a coordinator."""
