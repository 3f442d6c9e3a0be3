"""What users import: the app, its tasks, handles, workflows and workers."""
