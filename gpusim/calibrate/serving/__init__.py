"""Schedulers of serving engines, compared step by step with the real classes from the engines' published wheels."""
