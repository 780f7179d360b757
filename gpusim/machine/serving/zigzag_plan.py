"""FlexGen's plan for OPT: which tensors lie where, what that takes of each memory, and the plan that is the fastest.

A plan says for weights, keys and values, and activations which per cent are on the GPU and on the host; the rest is on disk.
FlexGen places whole tensors: in the order of a part's tensors (disk, host, GPU) each goes where its middle falls.  So
`weights=20/80` of OPT 30B keeps a twelfth of a layer on the GPU, the last of four matrices of attention.

FlexGen finds percentages by a linear program over a fitted model of costs.  Here those whose memory fits are tried, each
multiple of TRIED per cent, on the step times of `zigzag` itself.

Source: FMInference/FlexLLMGen @004ffef8 (Apache-2.0), flexllmgen/flex_opt.py (init_weight_list), experimental/cost_model.py for
what the GPU's tensors take, in own words.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from gpusim.base.errors import GpusimError
from gpusim.base.units import show_bytes
from gpusim.machine.profile import Profile
from gpusim.machine.serving import zigzag as z
from gpusim.machine.serving.operators import OperatorModel, achieved
from gpusim.machine.serving.shape import ServedModel

F64 = npt.NDArray[np.float64]
Shares = tuple[float, float]
"""Per cent on the GPU and on the host."""
TRIED = 10
BITS = 4.5
"""Of a packed element: 4, and two numbers of 16 bits for a group of 64."""
POSITIONS = 2050
_LAUNCHES = {z.EMBEDDING: 8, z.ATTENTION: 25, z.MLP: 8, z.HEAD: 5}


@dataclass(frozen=True)
class ZigzagPlan:
    """A block of `batches` batches of `rows` requests.

    weights, cache, activations  where they lie
    on_cpu    whether the CPU attends to keys and values that are not on the GPU
    pinned    whether the host's weights are
    overlap   whether copies run beside computing
    packed_weights, packed_cache  in 4 bits
    """

    rows: int
    batches: int
    weights: Shares = (100, 0)
    cache: Shares = (100, 0)
    activations: Shares = (100, 0)
    on_cpu: bool = False
    pinned: bool = True
    overlap: bool = True
    packed_weights: bool = False
    packed_cache: bool = False

    def __post_init__(self) -> None:
        for name in ("weights", "cache", "activations"):
            on_gpu, on_host = getattr(self, name)
            if min(on_gpu, on_host) < 0 or on_gpu + on_host > 100:
                raise GpusimError(f"{on_gpu:g} and {on_host:g} per cent of {name} are no shares", hint=f"{name}=20/80")
        if self.activations not in ((100, 0), (0, 100)):
            raise GpusimError("FlexGen keeps all activations on the GPU, or all on the host", hint="activations=0/100")
        if self.packed_cache and max(self.cache[0], self.cache[1], 100 - sum(self.cache)) != 100:
            raise GpusimError("FlexGen keeps packed keys and values in one place", hint="cache=0/100")
        if self.on_cpu and (self.cache[0] == 100 or self.packed_cache):
            raise GpusimError("the CPU attends to keys and values of 16 bits that are not on the GPU", hint="cache=0/100")

    @property
    def block(self) -> int:
        return self.rows * self.batches


def tensors(model: ServedModel) -> list[list[tuple[int, bool]]]:
    """Of each kind of part its tensors in FlexGen's order: elements, and whether it is a matrix (which may be packed)."""
    h, inner, words = model.width, model.hidden, model.vocabulary
    square, vector = (h * h, True), (h, False)
    return [
        [(words * h, True), (POSITIONS * h, True)],
        [square, vector] * 4 + [vector, vector],
        [(h * inner, True), (inner, False), (h * inner, True), vector, vector, vector],
        [vector, vector, (words * h, True)],
    ]


def placed(part: list[tuple[int, bool]], shares: Shares, packed: bool) -> list[float]:
    """Bytes of a part's tensors on the GPU, the host and the disk."""
    found, total, until = [0.0, 0.0, 0.0], sum(size for size, _ in part), 0
    on_disk, below = 100 - sum(shares), 100 - shares[0]
    for size, matrix in part:
        middle = 100 * (until + size / 2) / total
        place = z.ON_DISK if middle < on_disk else z.ON_HOST if middle < below else z.ON_GPU
        found[place] += size * (BITS if packed and matrix else 16) / 8
        until += size
    return found


@dataclass(frozen=True)
class ZigzagMachine:
    """The machine of a plan: bytes that each memory has for it, bytes/ns of copies and of the host's memory.

    room  on the GPU, the host and the disk
    """

    profile: Profile
    room: tuple[float, float, float]
    up: float
    down: float
    memory: float


class ZigzagModel:
    """OPT on a machine.  Raises GpusimError for another model, and for weights that are not of 16 bits."""

    def __init__(self, model: ServedModel, machine: ZigzagMachine) -> None:
        if not model.name.startswith("opt-") or model.weights != "bf16" or model.cache != "bf16":
            said = f"FlexGen's plan is modelled of OPT in 16 bits, and of its own packing, not of {model.name}"
            raise GpusimError(said, hint="opt-6.7b, opt-30b or opt-175b; bits=4 packs weights; else stream(layers=20)")
        self.model, self.machine, self._parts = model, machine, tensors(model)
        self._numbers = achieved(machine.profile)[0]
        self._grid = self._products()

    def _products(self) -> F64:
        """(KINDS, NODES) ns of products and norms, no less than their launches."""
        operators, model = OperatorModel(self.machine.profile), self.model
        m = np.exp2(np.arange(z.NODES) / z.AN_OCTAVE)
        h, row = model.width, 2.0 * model.width * m
        norm, add = operators.stream(2 * row, normed=True), operators.stream(3 * row)
        up, down = operators.gemm("bf16", m, model.hidden, h), operators.gemm("bf16", m, h, model.hidden)
        rows = {
            z.EMBEDDING: add,
            z.ATTENTION: norm + 4 * operators.gemm("bf16", m, h, h) + add,
            z.MLP: norm + up + operators.stream(4.0 * model.hidden * m) + down + add,
            z.HEAD: norm + operators.gemm("bf16", m, model.vocabulary, h),
        }
        eager = float(self.machine.profile.launch.eager.value)
        return np.stack([np.maximum(rows[kind], eager * _LAUNCHES[kind]) for kind in range(z.KINDS)])

    def numbers(self, plan: ZigzagPlan) -> F64:
        """What `zigzag.step_ns` reads."""
        found, model, machine, disk = np.zeros(z.GRID + z.KINDS * z.NODES), self.model, self.machine, self.machine.profile.nvme
        bandwidth = self._numbers.bandwidth / 1e9
        found[: z.BEGINS] = [
            model.layers, plan.rows, model.width, model.heads, plan.overlap, plan.pinned, plan.on_cpu,
            self._numbers.rate("fp16")[0] / 1e9, bandwidth, machine.up, machine.down, disk.read.value / 1e9,
            disk.write.value / 1e9, machine.memory, BITS if plan.packed_cache else 16, plan.cache[0] / 100,
            plan.cache[1] / 100, 1 - sum(plan.cache) / 100, 1 - plan.activations[0] / 100,
        ]  # fmt: skip
        for kind, part in enumerate(self._parts):
            found[z.STORED + 3 * kind : z.STORED + 3 * kind + 3] = placed(part, plan.weights, plan.packed_weights)
            if plan.packed_weights:
                found[z.UNPACK + kind] = z.UNPACKED * sum(size for size, matrix in part if matrix) / bandwidth
        found[z.GRID :] = np.log(self._grid).ravel()
        return found

    def held(self, plan: ZigzagPlan, prompt: int, output: int) -> F64:
        """(3,) bytes that the plan takes on the GPU, the host and the disk, of requests of these lengths."""
        model, h, found = self.model, self.model.width, np.zeros(3)
        away = 0.0
        for kind, part in enumerate(self._parts):
            bytes_ = placed(part, plan.weights, plan.packed_weights)
            found += np.array(bytes_) * (model.layers if kind in (z.ATTENTION, z.MLP) else 1)
            away += sum(bytes_[1:]) if kind in (z.ATTENTION, z.MLP) else 0  # a part, and the next one
        tokens = plan.block * (prompt + output - 1)
        cached = 2 * model.layers * h * tokens * (BITS if plan.packed_cache else 16) / 8
        found += cached * np.array([*plan.cache, 100 - sum(plan.cache)]) / 100
        hidden = 2 * h * prompt
        found[z.ON_GPU] += away + hidden * (plan.block if plan.activations[0] else 0) + plan.rows * self._working(prompt)
        found[z.ON_HOST] += hidden * plan.block * (plan.activations[0] == 0)
        if plan.on_cpu:  # keys and values of a batch and layer in 32 bits
            found[z.ON_HOST] += 8 * h * plan.rows * max(prompt + output - 1, prompt)
        return found

    def room_for(self, plan: ZigzagPlan, prompt: int) -> float:
        """Tokens whose keys and values the memories have room for beside the rest.  Raises GpusimError without such room."""
        beside = self.held(plan, prompt, 1 - prompt)  # without keys and values
        each = 2 * self.model.layers * self.model.width * (BITS if plan.packed_cache else 16) / 8
        shares = np.array([*plan.cache, 100 - sum(plan.cache)]) / 100
        left = np.array(self.machine.room) - beside
        for name, free in zip(("GPU", "host", "disk"), left, strict=True):
            if free < 0:
                raise GpusimError(f"the plan takes {show_bytes(int(-free))} more than the {name} has", hint="other shares")
        return float(min(free / (share * each) for free, share in zip(left, shares, strict=True) if share))

    def _working(self, prompt: int) -> float:
        """Bytes of the GPU's tensors of one request's prompt: as FlexGen's model of costs counts them."""
        model, h = self.model, self.model.width
        return prompt * (18 * h + 2 * model.hidden) + 2 * model.heads * prompt**2

    def fits(self, plan: ZigzagPlan, prompt: int, output: int) -> bool:
        """Whether each memory has room for it."""
        return bool((self.held(plan, prompt, output) <= self.machine.room).all())

    def ns(self, plan: ZigzagPlan, prompt: int, output: int) -> float:
        """Of a block of requests of these lengths."""
        return z.plan_ns(self.numbers(plan), plan.block, prompt, output)[0]

    def fastest(self, plan: ZigzagPlan, prompt: int, output: int, on_cpu: bool = False) -> ZigzagPlan:
        """With the percentages, of those tried, under which the block ends first; of equals the first that is tried.

        on_cpu  whether the CPU attends to keys and values that are not on the GPU
        Raises GpusimError where none fits.
        """
        tried = [one for one in _candidates(plan, on_cpu) if self.fits(one, prompt, output)]
        if not tried:
            said = f"no shares of memory hold {plan.block} requests of {prompt} + {output} tokens of {self.model.name}"
            raise GpusimError(said, hint="fewer requests at once, or bits=4")
        return min(tried, key=lambda one: self.ns(one, prompt, output))


def _shares() -> list[Shares]:
    """All pairs of multiples of TRIED, most on the GPU first."""
    each = range(100, -1, -TRIED)
    return [(float(a), float(b)) for a in each for b in each if a + b <= 100]


def _candidates(plan: ZigzagPlan, on_cpu: bool) -> Iterator[ZigzagPlan]:
    whole: list[Shares] = [(100, 0), (0, 100), (0, 0)]
    for activations in whole[:2]:
        for cache in whole if plan.packed_cache else _shares():
            for weights in _shares():
                below = on_cpu and cache[0] < 100
                yield replace(plan, weights=weights, cache=cache, activations=activations, on_cpu=below)
