"""The simulator: a clock with links, memory, the host, managed memory, control, and from tables to a result."""
