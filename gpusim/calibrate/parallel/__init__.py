"""Training steps on several GPUs: published measurements, and what a simulation of all ranks says of the same configuration."""
