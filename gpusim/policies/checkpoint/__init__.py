"""How long a job works until its next checkpoint."""
