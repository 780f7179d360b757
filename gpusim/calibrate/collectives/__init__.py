"""Times of collectives against measurements: which rows, what was fitted on which machines, and how far off the others are."""
