"""Programs of runs that gpusim has exported to other viewers, as far as the file still has them."""
