"""Defrag policies: when free memory is brought into one piece again."""
