"""One run: a trace, a machine and policies become a result."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpusim.api.inputs import Source, any_machine_of, source_of
from gpusim.api.result import Result
from gpusim.api.words import Named
from gpusim.base.defaults import LATER
from gpusim.base.errors import GpusimError, PolicyError
from gpusim.base.yaml import values
from gpusim.base.yaml.values import NONE, PolicySpec
from gpusim.engine.pages.settings import settings
from gpusim.experiment import users
from gpusim.experiment.single import single
from gpusim.experiment.spec import AS_RECORDED, KINDS, Policies, RunSpec
from gpusim.machine import sharing
from gpusim.machine import tiers as chains
from gpusim.machine.chain import lends
from gpusim.machine.profile import Profile
from gpusim.machine.tiers import DEFAULT
from gpusim.machine.topology.topology import Topology
from gpusim.policies import registry
from gpusim.programs.ranks import placement as placements
from gpusim.programs.ranks.layout import NO_LAYOUT, parse_layout
from gpusim.programs.ranks.placement import PACKED
from gpusim.programs.ranks.stragglers import NO_STRAGGLERS, is_clock_file, parse_stragglers, stragglers_text
from gpusim.trace import grain as grains

_USUAL = {kind: getattr(Policies(), kind)[0] for kind in KINDS}


def simulate(
    trace: str | Path | Source,
    machine: str | Path | Profile | Topology | None = None,
    *,
    on: str | Path | Profile | Topology | None = None,
    memory: str | int = "capacity",
    host_memory: str | int = "capacity",
    place: Any = None,
    evict: Any = None,
    prefetch: Any = None,
    plan: Any = None,
    release: Any = None,
    pool: Any = None,
    defrag: Any = None,
    tiers: str = DEFAULT,
    grain: str | int = "tensor",
    unified: str = "none",
    share: str | Sequence[str] = sharing.WORDS,
    active_thread_percentage: int = 100,
    parallel: str | Mapping[str, int | str | bool] = NO_LAYOUT,
    placement: Any = PACKED,
    stragglers: str | Mapping[int, float] = NO_STRAGGLERS,
    fold: bool = False,
    transform: str = AS_RECORDED,
    kernel_times: str | Path | None = None,
    use: Any = (),
    seed: int = 0,
    log: bool = False,
    bounds: bool = True,
) -> Result:
    """Run a program on a machine; out of memory is a result, not an error.

    trace        a name, a path, or what `load_trace` or `record` made
    machine, on  a name ("a100-pcie-80gb"), one with other numbers ("a100-pcie-80gb(link.h2d=50 GB/s)"), a path, or what
                 `load_machine` made; both words mean the same
    memory       bytes that the program may use: "32 GiB", "60 %" of its footprint, or "capacity", what the machine has;
                 host_memory the same of the host
    place, evict, prefetch, plan, release, pool, defrag
                 a policy: "lru", "next_k(k=4)", what `gpusim.policy` decorated, or that with parameters
                 (`functools.partial(mine, weight=2)`); by default pytorch, lru, and none
    tiers        memories below the GPU's, nearest first: "host > nvme", of ranks also other GPUs': "peer(any) > host"
    grain        "tensor", or the bytes of the chunks in which tensors move ("2 MiB")
    unified      "driver(...)": unified memory, whose page faults take the place of the policies
    share        what activities of the GPU share: "sms", "memory" (its bandwidth) and copy "engines", or "none"
    active_thread_percentage
                 percentage of the multiprocessors that the program's kernels may use together, as MPS limits it
    parallel     how the program is divided over the GPUs of a machine of several: "data=4 tensor=2", or
                 {"data": 4, "tensor": 2}; all ranks are simulated, and `result.ranks` has each
    placement    which GPU each rank has: a policy ("packed", "spread", "by_topology", or what `gpusim.policy.placement`
                 decorated), or the GPUs in the order of ranks, ["gpu0", "gpu3"]
    stragglers   ranks whose kernels take longer, by how much: "3=1.1", {3: 1.1}, "3=1.1@2ms..5ms", or a CSV file of clock rates
    fold         simulate one rank of each pipeline stage for all like it, where they are alike
    transform    what the trace is turned into first: "checkpointing | precision(to=bf16)"
    kernel_times a CSV file with your own measured times on this machine: gpu, operator, dtype, shape, time_us
    use          files with policies of your own, or the decorated objects, which the words above may name
    log          keep the event log, which `check` recomputes everything from
    bounds       also run without a memory limit and under oracle eviction: then the result has a slowdown

    Raises PolicyError, TraceError, ProfileError, UnitError, or another GpusimError: one sentence that says what to change.

    >>> import gpusim
    >>> result = gpusim.simulate("resnet50-train", on="a100-pcie-40gb", memory="60 %", evict="lru")
    >>> result.outcome, result.slowdown > 1
    ('finished', True)
    """
    where = on if machine is None else machine
    if where is None or (machine is not None and on is not None):
        said = "a run needs a machine" if where is None else "machine and on both name the machine"
        raise GpusimError(said, hint='write on="a100-pcie-80gb"')
    asked = {"place": place, "evict": evict, "prefetch": prefetch, "plan": plan, "release": release, "pool": pool,
             "defrag": defrag}  # fmt: skip
    named = Named(use)
    policies = {kind: _USUAL[kind] if asked[kind] is None else named.policy(kind, asked[kind]) for kind in KINDS}
    driver = named.policy("unified", unified)
    if driver != NONE:
        settings(driver, users.registry_of(named.files, named.given))
        if kind := next((kind for kind in KINDS if kind != "place" and asked[kind] is not None), ""):
            raise PolicyError(f"under unified memory the driver decides: there is no {kind} policy", hint="leave it out")
        policies |= {kind: _USUAL[kind] for kind in KINDS if kind != "place"}
    where_ranks_are = named.placement(placement)
    own = users.registry_of(named.files, named.given)
    placements.check(where_ranks_are, own)
    for kind, spec in policies.items():
        registry.bind(own.find(kind, spec.name), dict(spec.params))
    tiers = str(values.tiers(tiers))
    chains.check(tiers)
    if pool is not None and not lends(tiers):
        said = "a pool policy chooses among memories of other devices, and the tiers name none"
        raise PolicyError(said, hint='write tiers="peer(any) > host"')
    program, source = source_of(trace)
    place_name, profile = any_machine_of(where)
    spec = RunSpec(
        program, place_name, values.capacity(memory), values.capacity(host_memory), **policies, seed=seed, log=log,
        transform=transform, grain=grains.write(grains.parse(grain)) if grain != "tensor" else "tensor", tiers=tiers,
        unified=driver, share=sharing.write(sharing.parse(share)),
        active_thread_percentage=sharing.percentage(active_thread_percentage),
        parallel=NO_LAYOUT if parallel == NO_LAYOUT else str(parse_layout(parallel)), placement=where_ranks_are,
        stragglers=str(stragglers) if is_clock_file(stragglers) else stragglers_text(parse_stragglers(stragglers)),
        fold=fold, beside=LATER["beside"], tenancy=LATER["tenancy"],
    )  # fmt: skip
    return Result(*single(
        source, profile, spec, use=named.files, given=named.given, plan=_plan_file(policies["plan"]),
        kernel_times=None if kernel_times is None else Path(kernel_times), bounds=bounds,
    ), machine=profile)  # fmt: skip


def _plan_file(plan: PolicySpec) -> Path | None:
    return Path(plan.path).expanduser().resolve() if plan.path else None
