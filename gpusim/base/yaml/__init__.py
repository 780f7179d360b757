"""Strict YAML → frozen models: every mistake of a file at once, each with its line, and a suggestion."""
