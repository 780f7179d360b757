"""Which requests run next in an engine that serves them: schedulers by name and version, as their engines have them."""
