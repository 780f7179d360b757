"""Weights of learned release policies."""
