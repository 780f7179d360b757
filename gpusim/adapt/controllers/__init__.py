"""One controller a file, found by being there; see `gpusim.adapt.controller`."""
