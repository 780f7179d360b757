"""Training whose batch follows the memory that is there: a controller in the control plane (docs/adapt.md)."""

from gpusim.engine.control.controller import Choice as Choice
from gpusim.engine.control.controller import Controller as Controller
from gpusim.engine.control.controller import Round as Round
from gpusim.engine.control.controller import entries as entries
from gpusim.engine.control.training import train as train
