"""Step times and whole runs of served models, against what was measured and published."""
