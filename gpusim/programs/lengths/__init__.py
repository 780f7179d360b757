"""Lengths of sequences: of distributions, and as services recorded them."""
