"""What several learned eviction policies share, and their weights."""
