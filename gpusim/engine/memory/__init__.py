"""Where units are: residency, swaps, blocks, and what the evict policy is asked."""
