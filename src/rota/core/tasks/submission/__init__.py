"""Submission: new tasks are checked, given room and accepted, or existing ones answer."""
