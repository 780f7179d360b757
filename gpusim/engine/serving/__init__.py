"""Engines that serve requests, on one clock: steps, tokens, and keys and values on their way between memories."""
