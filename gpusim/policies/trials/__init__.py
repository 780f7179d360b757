"""One policy alone: an allocator over requests, an eviction policy over accesses."""
