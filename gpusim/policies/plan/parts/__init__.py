"""What planners are made of."""
