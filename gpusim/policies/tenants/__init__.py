"""Which of several programs has the GPU where their memory does not suffice for all."""
