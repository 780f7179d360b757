"""Who runs next in an engine that serves requests: schedulers by name and version, as their engines have them."""
