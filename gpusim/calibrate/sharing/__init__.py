"""Programs that share one GPU, as others have measured them: what time slices and MPS cost."""
