"""An MCP server: assistants ask a coordinator what is stuck and why, and may be let act."""
