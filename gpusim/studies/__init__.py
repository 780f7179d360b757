"""Questions with a verb of their own: will it fit, what fragments memory, the G10 study, static offsets."""
