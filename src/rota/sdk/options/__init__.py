"""Options as programs write them: durations, and names known from other systems."""
