"""Code for other programs: each file is copied as text, with other values for its constants."""
