"""What there is to say of a machine's kernel times: types that it emulates, TF32, its power limit."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

from gpusim.base.text import join
from gpusim.machine.kernels.classes import class_of
from gpusim.machine.kernels.measured import measured_gpu
from gpusim.machine.kernels.numbers import SHORT, Numbers, tf32
from gpusim.machine.kernels.operators import is_product
from gpusim.machine.profile import Profile
from gpusim.trace.trace import Trace

_EMULATED = ("bfloat16", "float16", "float8")
_HALVES = {"bf16", "fp16"}  # of one rate, where a GPU has both


def emulated(trace: Trace, profile: Profile) -> dict[str, str]:
    """Types that the program computes in and the GPU does not have -> the type that stands in: as much memory, and slower."""
    gpu = measured_gpu(profile).numbers
    used = [trace.dtypes[number].partition("_")[0] for number in np.unique(trace.dtype).tolist() if number >= 0]
    computed = {SHORT[name]: gpu.rate(name)[1] for name in sorted(used) if name in _EMULATED}
    return {name: by for name, by in computed.items() if name != by and {name, by} != _HALVES}


def remarks(trace: Trace, profile: Profile) -> list[str]:
    """Sentences on how the machine computes this program.  Raises ProfileError when the profile has no fp32 peak."""
    gpu = measured_gpu(profile).numbers
    said = [f"{name} is emulated in {by} on {profile.name}." for name, by in emulated(trace, profile).items()]
    float32 = trace.dtypes.index("float32") if "float32" in trace.dtypes else -1
    products = np.isin(trace.op, [i for i, name in enumerate(trace.op_names) if is_product(name)])
    if "tf32" in gpu.peak and np.any(products & (trace.dtype == float32)):
        runs: dict[bool, list[str]] = {True: [], False: []}
        for what, words in (("gemm", "matrix products"), ("conv", "convolutions")):
            runs[tf32(what, trace.meta)].append(words)
        without = f", not in {join(runs[False])}" if runs[True] and runs[False] else ""
        said.append(f"float32 runs in TF32 in {join(runs[True])}{without}." if runs[True] else "float32 runs without TF32.")
    if gpu.power_bound:
        said.append(f"{profile.name} does not hold its clock within {gpu.power:g} W under load; its rates are lower by that.")
    rates = sorted(_rates(trace, gpu, products) - gpu.measured)
    if rates:
        of = f"Large products in {join(rates)} were not measured on {profile.name}"
        said.append(f"{of}: their rate is a share of the vendor's peak.")
    return said


def _rates(trace: Trace, gpu: Numbers, products: npt.NDArray[np.bool_]) -> set[str]:
    """The types in which the machine computes the program's products."""
    found = set()
    for op, number in np.unique(np.stack([trace.op, trace.dtype], axis=1)[products], axis=0).tolist():
        name = trace.dtypes[number].partition("_")[0] if number >= 0 else "float32"
        in_tf32 = name == "float32" and tf32(class_of(trace.op_names[op]), trace.meta)
        found.add(gpu.rate("tf32" if in_tf32 else name)[1])
    return found
