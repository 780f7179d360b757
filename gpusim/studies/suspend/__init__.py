"""`gpusim suspend`: what it takes to take a process off a GPU and to bring it back, many times."""
