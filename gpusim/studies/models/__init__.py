"""Many models on few GPUs: where they lie, how they are loaded, what that costs their requests."""
