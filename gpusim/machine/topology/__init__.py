"""Whole machines: their nodes and wires as YAML, the routes between any two of them, and what programs on them share."""
