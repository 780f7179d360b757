"""From the words of a long run (machine, state, checkpoints, failures) to its numbers."""

from __future__ import annotations

import math
import re
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, UnitError, suggest
from gpusim.base.units import BYTES, RATE, TIME, parse, show_bytes
from gpusim.engine.failures.run import CheckpointCost, FailureKind, Job, ToldFailure
from gpusim.machine.topology import build, routes, transfers
from gpusim.machine.topology.topology import Topology
from gpusim.policies.forms import CheckpointPolicy
from gpusim.policies.registry import of
from gpusim.programs.zoo.models import ENTRIES
from gpusim.studies.failures.kinds import kinds_of

BYTES_OF_PARAMETER = 14
"""Of training state that is saved: weights in 16 bits, masters and Adam's two moments in 32."""
_MANY = re.compile(r"(\d{1,6})\s*x\s+(.+)")
CHECKPOINTS = ("sync", "two_phase", "peers")


@dataclass(frozen=True, kw_only=True)
class LongRunSpec:
    """A long run in words; see `gpusim failures --help`."""

    machine: str
    state: str
    work: str = "30 d"
    step: str = ""
    failures: str = "llama3"
    checkpoint: str = "two_phase"
    every: str = "daly"
    storage: str = ""
    spare: int = 0
    least: int = 0
    unit: int = 1
    restart: str = "5 min"
    detect: str = "1 min"
    repair: str = "24 h"
    use: tuple[Any, ...] = ()


@dataclass(frozen=True)
class PreparedRun:
    """The numbers of a long run; bytes of the state in all and of each node."""

    spec: LongRunSpec
    topology: Topology
    job: Job
    cost: CheckpointCost
    kinds: tuple[FailureKind, ...]
    told: tuple[ToldFailure, ...]
    policy: CheckpointPolicy
    state: int
    node_bytes: float


def prepare(spec: LongRunSpec) -> PreparedRun:
    """Checks the words.  Raises GpusimError with the reason."""
    machine, hosts, gpus = _hosts(spec.machine)
    nodes = hosts - spec.spare
    if nodes < 1:
        raise GpusimError(f"'{spec.machine}' has {hosts} hosts: none is left beside {spec.spare} spare ones")
    state = state_bytes(spec.state)
    detect, repair = _time("detect", spec.detect), _time("repair", spec.repair)
    kinds, told = kinds_of(spec.failures, gpus, detect, repair)
    restart = _time("restart", spec.restart)
    job = Job(
        work=_time("work", spec.work), nodes=nodes, least=spec.least, unit=spec.unit, spare=spec.spare, gpus=gpus,
        restart=restart, regroup=restart, step=_time("step", spec.step) if spec.step else 0.0,
    )  # fmt: skip
    room = nodes * sum(machine.profile(gpu).memory.capacity.value for gpu in machine.gpus[:gpus])
    if state > room:
        has = show_bytes(int(room))
        raise GpusimError(f"{show_bytes(state)} of state do not fit the {nodes * gpus} GPUs, which have {has}")
    cost = checkpoint_cost(spec, machine, state, job)
    policy = of(*spec.use).get("checkpoint", interval_word(spec.every))
    return PreparedRun(spec, machine, job, cost, kinds, told, policy, state, state / nodes)


def _hosts(word: str) -> tuple[Topology, int, int]:
    """(machine, hosts, GPUs of each); of many equal machines two are enough to know how they copy."""
    match = _MANY.fullmatch(word.strip())
    times = int(match[1]) if match else 1
    machine = build.load(f"2 x {match[2]}" if match and times > 2 else word)
    if times > 2 and len(set(machine.host.values())) == 1:  # GPUs of one host
        machine, times = build.load(word), 1
    if len({machine.profile(gpu).name for gpu in machine.gpus}) > 1:
        raise GpusimError(f"'{machine.name}' has GPUs of several kinds, and a long run is modelled on equal nodes")
    hosts = Counter(machine.host[gpu] for gpu in machine.gpus)
    if len(set(hosts.values())) > 1:
        raise GpusimError(f"the hosts of '{machine.name}' have different numbers of GPUs, which a long run does not model")
    count = len(hosts) * times // 2 if times > 2 else len(hosts)
    return machine, count, next(iter(hosts.values()))


def state_bytes(word: str) -> int:
    """"1.1 TB", or a model of the zoo with 14 bytes for each parameter.  Raises GpusimError."""
    models = {entry.name: entry.parameters for entry in ENTRIES}
    if word in models:
        return models[word] * BYTES_OF_PARAMETER
    try:
        found = int(parse(word, BYTES))
    except UnitError:
        hint = suggest(word, models) or "1.1 TB"
        raise GpusimError(f"'{word}' is neither a size nor a model of the zoo", hint=hint) from None
    if found < 1:
        raise GpusimError("a state of no bytes needs no checkpoint")
    return found


def interval_word(word: str) -> str:
    """"30 min" means a fixed time; anything else names a policy."""
    try:
        return f"every(seconds={float(parse(word, TIME)) / 1e9!r})"
    except UnitError:
        return word


def _time(name: str, word: str) -> float:
    try:
        return float(parse(word, TIME))
    except UnitError as error:
        raise GpusimError(f"{name}: {error.message}", hint=error.hint) from None


def checkpoint_cost(spec: LongRunSpec, machine: Topology, state: int, job: Job) -> CheckpointCost:
    """What a checkpoint costs, from the machine's links: all GPUs of a node copy at once, and all nodes store at once."""
    name, words = split(spec.checkpoint, "a kind of checkpoint")
    numbers = {"copies": 1.0 if name == "peers" else 0.0, "each": 10.0 if name == "peers" else 1.0, "full": 1.0, "share": 1.0,
               "speed": 1.0, "agent": 0.0}  # fmt: skip
    if name not in CHECKPOINTS:
        raise GpusimError(f"there is no checkpoint '{name}'", hint=suggest(name, CHECKPOINTS) or ", ".join(CHECKPOINTS))
    for key, text in words.items():
        if key not in numbers:
            raise GpusimError(f"a {name} checkpoint has no '{key}'", hint=suggest(key, numbers))
        try:
            numbers[key] = float(text)
        except ValueError:
            raise GpusimError(f"'{text}' is no number for {key}", hint=f"write {key}={numbers[key]:g}") from None
    for key in ("share", "speed"):
        if not 0 < numbers[key] <= 1:
            raise GpusimError(f"{key} of a checkpoint is {numbers[key]:g}", hint="a share above 0, 1 at most")
    if min(numbers["full"], 1 + numbers["copies"], 1 + numbers["each"]) < 1:
        raise GpusimError("a checkpoint has no negative numbers")
    per_gpu = state / job.nodes / job.gpus
    out, back = _host_copy(machine, per_gpu, job.gpus), _host_copy(machine, per_gpu, job.gpus, back=True)
    stored = _stored(spec, machine, state, job)
    if name == "sync":
        return CheckpointCost(
            stop=out + stored, load=(0.0, 0.0, stored + back), full=int(numbers["full"]), share=numbers["share"]
        )
    keeps = 1 + (int(numbers["copies"]) if name == "peers" else 0)
    _check_host(machine, state / job.nodes, keeps)
    over = _network(machine, per_gpu, job.gpus) if name == "peers" else 0.0
    return CheckpointCost(
        stop=out, to_peers=over * numbers["copies"], to_storage=stored, load=(back, over + back, stored + back), host=True,
        agent=bool(numbers["agent"]), copies=keeps - 1, each=int(numbers["each"]), full=int(numbers["full"]),
        share=numbers["share"], speed=numbers["speed"],
    )  # fmt: skip


def _at_once(machine: Topology, flows: list[transfers.LinkFlow], each: float) -> float:
    """ns until equal flows of so many bytes that begin together have all ended: the fullest link decides."""
    rates, loads = transfers.rates(machine), Counter(link for flow in flows for link in flow.links)
    slowest = max((load / rates[link] for link, load in loads.items()), default=0.0)
    return max(flow.latency for flow in flows) + each * max(slowest, *(1.0 / flow.rate for flow in flows))


def _host_copy(machine: Topology, size: float, gpus: int, back: bool = False) -> float:
    flows = []
    for gpu in machine.gpus[:gpus]:
        ends = (gpu, routes.nearest(machine, gpu, "socket"))
        route = routes.between(machine, *(reversed(ends) if back else ends))
        flows.append(max(transfers.flows(machine, route, 1 << 30), key=lambda part: part.size))
    return _at_once(machine, flows, size)


def _network(machine: Topology, size: float, gpus: int) -> float:
    """ns from the GPUs of one node to those of the next, all at once.  Raises GpusimError without a second node."""
    if len(machine.gpus) < 2 * gpus:
        raise GpusimError("there are no neighbours to keep copies", hint="name several nodes: 4 x hgx-h100")
    flows = []
    for a, b in zip(machine.gpus[:gpus], machine.gpus[gpus : 2 * gpus], strict=True):
        flows.append(max(transfers.flows(machine, routes.between(machine, a, b), 1 << 30), key=lambda part: part.size))
    return _at_once(machine, flows, size)


def _stored(spec: LongRunSpec, machine: Topology, state: int, job: Job) -> float:
    if not spec.storage:
        hint = "--storage '100 GB/s', of all nodes together"
        raise GpusimError("nothing says how fast the storage takes checkpoints", hint=hint)
    rate = float(parse(spec.storage, RATE)) / 1e9
    if rate <= 0:
        raise GpusimError("a storage of 0 GB/s takes no checkpoint")
    alone = _network(machine, state / job.nodes / job.gpus, job.gpus) if job.nodes > 1 else 0.0
    return max(state / rate, alone)


def _check_host(machine: Topology, node: float, keeps: int) -> None:
    host = machine.host[machine.gpus[0]]
    there = sum(n.capacity or 0 for name, n in machine.nodes.items() if n.kind == "socket" and machine.host[name] == host)
    wanted = int(2 * node * keeps)  # the copy at hand must not overwrite the one that is safe
    if there and wanted > there:
        raise GpusimError(
            f"two checkpoints in a host's memory, {keeps} part{'s' if keeps > 1 else ''} each, take {show_bytes(wanted)} of "
            f"{show_bytes(there)}",
            hint="fewer copies, more nodes, or checkpoint=sync",
        )


def with_interval(run: PreparedRun, every: str) -> PreparedRun:
    """The same run with another interval or policy."""
    policy = of(*run.spec.use).get("checkpoint", interval_word(every))
    return replace(run, spec=replace(run.spec, every=every), policy=policy)


def hours(ns: float) -> float:
    """Of ns; math.inf stays."""
    return ns / 3.6e12 if math.isfinite(ns) else ns
