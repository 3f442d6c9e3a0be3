"""The run of a workflow: tokens move through nodes, fan out, join and end."""
