"""Simulated incidents: programs to which something happens at a known step, and what the alerts say of them, and when.

Each is a plain training program (programs.generate.synth) with one thing changed; in some nothing is wrong.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace

import numpy as np

from gpusim.base.yaml import values
from gpusim.experiment.single import single
from gpusim.experiment.spec import KINDS, Policies, RunSpec
from gpusim.machine import words
from gpusim.programs.generate.synth import training
from gpusim.results.activities import activities
from gpusim.results.monitoring.alerts import Firing, firing
from gpusim.results.monitoring.clock import chosen
from gpusim.results.monitoring.samples import Samples
from gpusim.results.monitoring.taken import samples
from gpusim.results.result import Result
from gpusim.trace.build import make_trace
from gpusim.trace.edit import Edit
from gpusim.trace.iterations import iterations
from gpusim.trace.trace import COLUMNS, FREE, NAME_TABLES, OP, SYNC, Trace

MACHINE = "a100-pcie-40gb"
STEPS, FROM = 40, 15  # of each program; the step at which it happens, counted from 1
_SYNCHRONISED = {"kind": SYNC, "arg": -1, "stream": 0, "time": -1, "addr": -1}
TOKENS, LAYERS, WIDTH = 8192, 12, 2048


@dataclass(frozen=True)
class Incident:
    """What happens, in which programs, on how much memory.

    programs  makes the program of each device of the run
    settings  of the run: memory, host_memory, a policy for evict, unified
    begins    the step at which it begins, counted from 1; 0 where nothing is wrong
    expected  alerts that should fire, and no others
    """

    name: str
    meaning: str
    programs: Callable[[], list[Trace]]
    settings: Mapping[str, str] = field(default_factory=dict)
    begins: int = 0
    expected: tuple[str, ...] = ()


@dataclass(frozen=True, eq=False)
class Observed:
    """An incident that was simulated: of each of its devices the result and the samples; what fired."""

    incident: Incident
    results: list[Result]
    samples: list[Samples]
    fired: list[Firing]

    @property
    def began(self) -> int:
        """When it began, simulated ns: at the end of the step before; 0 where nothing is wrong."""
        ended = self.samples[0].total("steps")
        return int(self.samples[0].at[np.searchsorted(ended, self.incident.begins - 1)]) if self.incident.begins > 1 else 0

    @property
    def ended(self) -> int:
        """When the run was over, simulated ns."""
        return max(int(result.metrics["makespan_ns"]) for result in self.results)

    def step(self, at: int) -> int:
        """How many steps had ended then on the first device."""
        place = self.samples[0]
        return int(place.total("steps")[np.searchsorted(place.at, at)])


def observe(incident: Incident) -> Observed:
    """Simulate it and look at the alerts."""
    ran = [(_run(incident, program), program) for program in incident.programs()]
    until = max(int(result.metrics["makespan_ns"]) for result, _ in ran)
    clock = chosen(until)
    places = [
        samples(result, program, activities(result, program), clock, place=(number, 0, 0), until=until)
        for number, (result, program) in enumerate(ran)
    ]
    return Observed(incident, [result for result, _ in ran], places, firing(places))


def _run(incident: Incident, program: Trace) -> Result:
    asked = incident.settings
    policies = {kind: getattr(Policies(), kind)[0] for kind in KINDS}
    if "evict" in asked:
        policies["evict"] = values.policy(asked["evict"])
    spec = RunSpec(
        program.name, MACHINE, values.capacity(asked.get("memory", "capacity")),
        values.capacity(asked.get("host_memory", "capacity")), **policies, log=True,
        unified=values.policy(asked.get("unified", "none")),
    )  # fmt: skip
    result, _ = single(program, words.load(MACHINE), spec, bounds=False)
    return replace(result, key=incident.name.replace(" ", "-"))


def _training(tokens: Sequence[int]) -> Trace:
    """Steps of so many tokens, at whose end the host waits for the device, as loops do that print their loss."""
    trace = training(tokens, layers=LAYERS, width=WIDTH)
    ends = np.append(np.flatnonzero(np.diff(iterations(trace))) + 1, trace.events)
    events = {name: np.insert(getattr(trace, name), ends, fill) for name, fill in _SYNCHRONISED.items()}
    rest = {name: getattr(trace, name) for name in COLUMNS if name not in (*events, "bytes", "phase")}
    return make_trace(trace.name, rest | events, {name: getattr(trace, name) for name in NAME_TABLES}, trace.meta)


def _plain() -> Trace:
    return _training([TOKENS] * STEPS)


def _leaking() -> Trace:
    """One activation of each step, 32 MiB, is never given back."""
    trace = _plain()
    frees = np.flatnonzero(trace.kind == FREE)
    frees = frees[trace.category[trace.arg[frees]] == trace.categories.index("fwd")]
    step = iterations(trace)[frees]
    edit, kept = Edit(trace), np.zeros(trace.events, bool)
    kept[[frees[step == number][0] for number in range(FROM - 1, STEPS)]] = True
    edit.drop_events(kept)
    return edit.finish()


def _growing() -> Trace:
    """The batch of each step is a sixteenth larger than the first."""
    return _training([TOKENS + TOKENS // 16 * max(0, step - FROM + 1) for step in range(1, STEPS + 1)])


def _small() -> Trace:
    return _training([TOKENS // 4] * STEPS)


def _varied() -> Trace:
    lengths = np.random.Generator(np.random.PCG64(0)).integers(TOKENS // 2, TOKENS, STEPS)
    return _training(lengths.tolist())


def _slowed(factor: float) -> Trace:
    trace = _plain()
    edit = Edit(trace)
    edit["flops"][iterations(trace)[trace.kind == OP] >= FROM - 1] *= factor
    return edit.finish()


LEAK, DEVICE, HOST, OOM, THRASHING, STRAGGLER = (
    "GpusimMemoryLeak", "GpusimDeviceMemoryRunsOut", "GpusimHostMemoryRunsOut", "GpusimOutOfMemory", "GpusimThrashing",
    "GpusimStraggler",
)  # fmt: skip
INCIDENTS = (
    Incident("nothing wrong", "a training program with room for all that it holds", lambda: [_plain()]),
    Incident("other lengths", "the same with batches of half the size to all of it, at random", lambda: [_varied()]),
    Incident("little swapped", "the same with nine tenths of what it needs", lambda: [_plain()], {"memory": "90 %"}),
    Incident("equal devices", "four devices, one of which is a tenth slower from step 15 on",
             lambda: [*[_plain()] * 3, _slowed(1.1)]),
    Incident("leak", "32 MiB of each step are kept from step 15 on", lambda: [_leaking()], {}, FROM, (LEAK,)),
    Incident("leak to the end", "the same with 2.5 GiB of memory and nothing evicted", lambda: [_leaking()],
             {"memory": "2.5 GiB", "evict": "none"}, FROM, (LEAK, DEVICE, OOM)),
    Incident("leak to the host", "the same with 2 GiB, the least used swapped out to 512 MiB of host memory",
             lambda: [_leaking()], {"memory": "2 GiB", "host_memory": "512 MiB"}, FROM, (LEAK, HOST, OOM)),
    Incident("out of memory ahead", "batches grow by a sixteenth a step from step 15 on, with 2.5 GiB and nothing evicted",
             lambda: [_growing()], {"memory": "2.5 GiB", "evict": "none"}, FROM, (DEVICE, OOM)),
    Incident("thrashing", "batches of a quarter of the size, with two thirds of what they need", lambda: [_small()],
             {"memory": "66 %"}, 1, (THRASHING,)),
    Incident("unified thrashing", "the same under unified memory", lambda: [_small()],
             {"memory": "66 %", "unified": "driver"}, 1, (THRASHING,)),
    Incident("straggler", "four devices, one of which takes 1.4 times as long from step 15 on",
             lambda: [*[_plain()] * 3, _slowed(1.4)], {}, FROM, (STRAGGLER,)),
)  # fmt: skip
