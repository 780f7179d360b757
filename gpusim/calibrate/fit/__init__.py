"""From measurement rows to a profile: every number with its error bar and the rows that it came from."""
