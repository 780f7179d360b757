"""Inference of a decoder whose blocks are visited one by one, with weights, cache or activations outside of the GPU's memory.

    generation(Decoder(...), Placement(...), GenerationLoad(...)) -> Trace

FlexGen, ZeRO-Inference, Accelerate and llama.cpp differ in what is where, when it is copied and what computes; all of that is a
`Placement`.  The trace has its own copies and work of the CPU (`Trace.activity`), so that it runs under any policy.
"""

from gpusim.programs.blockwise.decoder import Decoder
from gpusim.programs.blockwise.generation import GenerationLoad, generation
from gpusim.programs.blockwise.placement import Placement

__all__ = ["Decoder", "GenerationLoad", "Placement", "generation"]
