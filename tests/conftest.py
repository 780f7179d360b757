"""What all tests share: none of them depends on how fast the machine is."""

from hypothesis import settings

settings.register_profile("gpusim", deadline=None)
settings.load_profile("gpusim")
