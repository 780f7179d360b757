"""`gpusim cluster`: when jobs on a cluster end, by scheduler, and how many GPUs they need."""
