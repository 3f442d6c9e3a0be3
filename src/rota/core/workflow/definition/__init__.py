"""Workflow definitions: the model, the parser, and the validator with its analyses."""
