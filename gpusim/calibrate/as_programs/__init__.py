"""A measurement row as a program for the simulator: what was measured, said in kernels, copies and calls for memory."""
