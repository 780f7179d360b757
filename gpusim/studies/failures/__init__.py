"""`gpusim failures`: how long a training run takes on machines that fail, and how often to save it."""
