"""Which jobs of a cluster run on which GPUs."""
