"""Programs under managed memory: allocations, kernels as access patterns, and their text form."""
