"""Training whose batch follows the memory that is there: a controller in the control plane (docs/adapt.md)."""

from gpusim.adapt.controller import Controller as Controller
from gpusim.adapt.controller import Round as Round
from gpusim.adapt.controller import entries as entries
from gpusim.adapt.training import train as train
