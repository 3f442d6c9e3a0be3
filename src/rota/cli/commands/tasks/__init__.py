"""Commands that submit and steer tasks."""
