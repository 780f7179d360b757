"""The driver's own: free, unused, discarded, used; a service refreshes a chunk, a mere use by a kernel does not."""
