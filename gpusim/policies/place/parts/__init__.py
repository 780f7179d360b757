"""What allocators are made of."""
