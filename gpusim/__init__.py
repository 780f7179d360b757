"""gpusim: a discrete-event simulator of GPU and host memory hierarchies."""
