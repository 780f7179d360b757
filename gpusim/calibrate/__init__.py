"""From a machine to its profile: measure it, fit a profile, compare the simulator with what was measured."""
