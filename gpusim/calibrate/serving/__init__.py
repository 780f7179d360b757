"""Step times and whole runs of serving engines, against measured operators and published runs."""
