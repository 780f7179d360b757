"""Programs of servers of LLM requests."""
