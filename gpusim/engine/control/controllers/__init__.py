"""One controller a file, found by being there; see `gpusim.engine.control.controller`."""
