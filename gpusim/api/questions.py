"""Will it fit, and what does memory go to: the studies behind `gpusim fit` and `gpusim oom`."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from gpusim.api.frames import frame
from gpusim.api.inputs import load_trace, machine_of
from gpusim.api.showing import inline, preformatted
from gpusim.base.errors import ResultError, TraceError, suggest
from gpusim.base.text import table
from gpusim.base.units import parse_bytes
from gpusim.base.yaml.find import names
from gpusim.machine.kernels.durations import load_own_times, own_times_of
from gpusim.machine.profile import Profile
from gpusim.machine.topology.topology import Topology
from gpusim.policies import registry
from gpusim.show import allocator_study as study
from gpusim.show import fit as fit_figure
from gpusim.studies import kernels as kernel_study
from gpusim.studies.capacity import remedies, whole
from gpusim.studies.capacity import report as fit_report
from gpusim.studies.capacity import study as capacity
from gpusim.studies.capacity.settings import AllocatorSettings
from gpusim.studies.fragmentation import candidates
from gpusim.studies.fragmentation import report as oom_report
from gpusim.studies.fragmentation import study as fragmentation
from gpusim.trace.trace import Trace

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

FIGURES = ("held_over_time", "heap_states", "heap", "free_blocks", "heap_over_time")


class Fit:
    """On which machines a program fits, what would make it fit, and what that costs; as text, rows, JSON values or figure."""

    def __init__(self, of: capacity.CapacityStudy) -> None:
        self._of = of
        self.values: dict[str, Any] = fit_report.values(of)

    def frame(self) -> DataFrame:
        """As a pandas DataFrame: a row per machine and way, fastest first; a machine on which nothing fits has one row.

        profile, capacity_bytes, fits (as it is), remedy ("" for none), gpus, step_ns with low_ns and high_ns (estimated),
        slowdown (against a memory that never fills), reserved_bytes, largest_batch.  Where all ranks of several GPUs were
        simulated: machine, and for step_ns a batch.
        """
        same = ("profile", "capacity_bytes", "fits", "largest_batch")
        return frame([
            {**{key: machine[key] for key in same}, **way}
            for machine in self.values["machines"]
            for way in machine["ways"] or [{}]
        ])  # fmt: skip

    def plot(self) -> Figure:
        """What fills the memory at the peak, and what the program takes on each machine; shown in a notebook."""
        return inline(fit_figure.draw(self.values))

    def __str__(self) -> str:
        return fit_report.text(self._of)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


class MemoryStudy:
    """Why memory ran out or was wasted, what holds it, and what would help; as text, rows, JSON values or figures."""

    def __init__(self, of: fragmentation.FragmentationStudy) -> None:
        self._of = of
        self.values: dict[str, Any] = oom_report.values(of)

    def frame(self) -> DataFrame:
        """As a pandas DataFrame: a row per setting or allocator that was tried, least held first.

        label, how (to get it), fits, held_low_bytes to held_high_bytes, saving_low_bytes to saving_high_bytes (against the
        recorded setting; both ends are equal where the recording leaves nothing open), device_allocs, device_frees.
        """
        return frame([
            {
                **{key: tried[key] for key in ("label", "how", "fits")},
                **{f"{name}_{end}_bytes": size for name in ("held", "saving")
                   for end, size in zip(("low", "high"), tried[name], strict=True)},
                **{key: tried[key] for key in ("device_allocs", "device_frees")},
            }
            for tried in self.values["candidates"]
        ])  # fmt: skip

    def plot(self, kind: str = "held_over_time") -> Figure:
        """One of held_over_time, heap_states, heap, free_blocks, heap_over_time; shown in a notebook.  ResultError else."""
        if kind not in FIGURES:
            raise ResultError(f"there is no figure '{kind}'", hint=suggest(kind, FIGURES) or f"one of {', '.join(FIGURES)}")
        if kind != FIGURES[0] and not self._of.diagnosis.heap.held:
            raise ResultError(f"there is nothing to show as {kind}: the heap is empty")
        return inline(study.FIGURES[kind](self._of))

    def __str__(self) -> str:
        return oom_report.text(self._of)

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def fit(
    trace: str | Path | Trace, machines: str | Profile | Topology | Sequence[str | Profile | Topology] = (), *,
    tries: Sequence[str] = (), allocator: str = "", context: str | None = None, use: Sequence[Any] = (),
    kernel_times: str | Path | None = None,
) -> Fit:  # fmt: skip
    """Ask on which machines a program fits, what would make it fit, and what that costs.

    machines   names, also "4 x l40s" and those of several GPUs, or what `load_machine` made; none: all GPUs that are known
    tries      what to try where it does not fit: "checkpointing", "offload", ...; by default what the program allows
    allocator  PyTorch's settings, as in PYTORCH_CUDA_ALLOC_CONF
    context    bytes of the CUDA context and of libraries; None: each machine's own
    use        files with transforms of your own, or the decorated functions, which `tries` may name
    kernel_times  a CSV file with your own measured times: gpu, operator, dtype, shape, time_us

    Raises TraceError for a program that does not say what is in memory, ProfileError, PolicyError.

    >>> import gpusim
    >>> answer = gpusim.fit("gpt2-small-train", ["t4", "a100-sxm4-80gb"], tries=["checkpointing"])
    >>> [(m["profile"], m["fits"]) for m in answer.values["machines"]]
    [('a100-sxm4-80gb', True), ('t4', True)]
    """
    wanted = [machines] if isinstance(machines, str | Profile | Topology) else list(machines)
    asked = whole.asked_machines(wanted or names("profile"))
    settings = AllocatorSettings(allocator, None if context is None else parse_bytes(context))
    settings.allocator()  # refuses what it does not know
    program, own = _recorded(trace), registry.of(*use)
    chosen = remedies.named(list(tries), own) if tries else ()
    tables = {} if kernel_times is None else own_times_of(Path(kernel_times), asked.profiles)
    return Fit(whole.study_all(program, asked, chosen, settings=settings, own=own, tables=tables))


class KernelTimes:
    """How long a program's kernels take on a machine, by class; as text, rows or JSON values."""

    def __init__(self, of: kernel_study.KernelStudy) -> None:
        self._of = of
        self.values: dict[str, Any] = of.values()

    def frame(self) -> DataFrame:
        """As a pandas DataFrame: a row per class of kernels, the longest first.

        class, count, ns, share (of all kernels' time), bound (compute, memory, launch, host), basis, low_ns, high_ns.
        """
        return frame(self.values["classes"])

    def __str__(self) -> str:
        rows = self._of.rows()
        return "\n".join([table(rows, list(rows[0])) if rows else "", "", *self._of.sentences()])

    def _repr_html_(self) -> str:
        return preformatted(str(self))


def kernel_times(
    trace: str | Path | Trace, *, on: str | Profile, recorded_on: str | Profile | None = None, own: str | Path | None = None,
) -> KernelTimes:  # fmt: skip
    """Ask how long a program's kernels take on a machine: per class count, time, bound, basis and interval.

    recorded_on  the machine that the recording's own times are of: on another one they are scaled
    own          a CSV file with measured times on the machine: gpu, operator, dtype, shape, time_us

    Raises TraceError for a file that is no such table, ProfileError for one of another GPU.

    >>> import gpusim
    >>> found = gpusim.kernel_times("gpt2-small-train", on="a100-sxm4-80gb").values
    >>> max(found["classes"], key=lambda each: each["ns"])["class"], found["low_ns"] < found["kernels_ns"] < found["high_ns"]
    ('gemm', True)
    """
    program, profile = _recorded(trace), machine_of(on)[1]
    origin = None if recorded_on is None else machine_of(recorded_on)[1]
    measured = None if own is None else load_own_times(Path(own), profile)
    return KernelTimes(kernel_study.study(program, profile, origin, measured))


def oom(
    trace: str | Path | Trace, *, capacity: str | int | None = None, on: str | Profile | None = None, tries: Sequence[str] = (),
    device: int | None = None, use: Sequence[Any] = (),
) -> MemoryStudy:  # fmt: skip
    """Ask why memory ran out or was wasted, what holds it, and which setting or allocator holds less.

    trace     a memory snapshot of PyTorch, another tool's recording, or a trace: by name, path, or loaded
    capacity  bytes that the allocator could hold, or on: the machine whose memory it had; neither: as recorded
    tries     settings of PyTorch's allocator, or other allocators, instead of the usual ones
    device    which GPU of a snapshot that holds several
    use       files with allocators of your own, or the decorated classes, which `tries` may name

    Raises TraceError for a recording that does not say what was allocated, UnitError, PolicyError.

    >>> import gpusim
    >>> study = gpusim.oom("gpt-medium-infer-snapshot", tries=["expandable_segments:True"])
    >>> study.values["baseline"]["exact"]
    True
    """
    program = _recorded(trace, device)
    chosen = candidates.beside(program, tries, registry.of(*use)) if tries else candidates.default(program)
    limit = None if capacity is None else parse_bytes(capacity)
    if on is not None:
        profile = machine_of(on)[1]
        limit = int(profile.memory.capacity.value - profile.context.value)
    return MemoryStudy(fragmentation.study(program, chosen, limit))


def _recorded(trace: str | Path | Trace, device: int | None = None) -> Trace:
    found = trace if isinstance(trace, Trace) else load_trace(trace, device)
    if not isinstance(found, Trace):
        raise TraceError(f"'{found.name}' is a managed program, which has no allocator")
    return found
