"""The host: it issues instructions, brings in what they need and carries out plans."""
