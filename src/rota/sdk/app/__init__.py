"""Apps: tasks, workflows and schedules of a program, and its connection to a coordinator."""
