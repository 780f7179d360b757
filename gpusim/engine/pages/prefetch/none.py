"""The faulted pages alone."""
