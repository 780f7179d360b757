"""Models with experts that do not fit the GPU: which cache of experts, which guesses, copies or the CPU."""
