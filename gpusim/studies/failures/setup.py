"""From the words of a long run (machine, state, checkpoints, failures) to its numbers."""

from __future__ import annotations

import math
from collections import Counter
from dataclasses import dataclass, replace
from typing import Any

from gpusim.base.errors import GpusimError, UnitError, suggest
from gpusim.base.units import BYTES, RATE, TIME, parse, show_bytes
from gpusim.engine.failures.oom_killer import OomKill
from gpusim.engine.failures.run import CheckpointCost, FailureKind, Job, ToldFailure
from gpusim.machine.topology import build
from gpusim.machine.topology.topology import DIRECT, Topology
from gpusim.policies.forms import CheckpointPolicy
from gpusim.policies.registry import of as of_registry
from gpusim.programs.zoo.models import ENTRIES
from gpusim.studies.failures import costs
from gpusim.studies.failures.host import host_failure
from gpusim.studies.failures.kinds import FailureContext, checked_nodes, kinds_of
from gpusim.studies.failures.steps import SEVERAL, SimulatedSteps

BYTES_OF_PARAMETER = 14
"""Of training state that is saved: weights in 16 bits, masters and Adam's two moments in 32."""
_BOARD = 8  # GPUs on a board with NVSwitches, which is one host's


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
    program: str = ""
    parallel: str = ""
    host: str = ""
    margin: str = ""
    use: tuple[Any, ...] = ()


@dataclass(frozen=True)
class PreparedRun:
    """The numbers of a long run.

    state, node_bytes  bytes of the state in all and of each node
    kills  what Linux kills on a node whose memory fills, up to the first process of the job
    """

    spec: LongRunSpec
    topology: Topology
    job: Job
    cost: CheckpointCost
    kinds: tuple[FailureKind, ...]
    told: tuple[ToldFailure, ...]
    policy: CheckpointPolicy
    state: int
    node_bytes: float
    kills: tuple[OomKill, ...] = ()


def prepare(spec: LongRunSpec) -> PreparedRun:
    """Checks the words.  Raises GpusimError with the reason."""
    machine, hosts, gpus = _hosts(spec.machine)
    nodes = hosts - spec.spare
    if nodes < 1:
        many = "1 host" if hosts == 1 else f"{hosts} hosts"
        raise GpusimError(f"'{spec.machine}' has {many}: none is left beside {spec.spare} spare ones")
    state, said = state_bytes(spec.state), costs.words(spec.checkpoint)
    steps = _steps(spec, nodes)
    kinds, told = kinds_of(spec.failures, _context(spec, machine, gpus, steps))
    checked_nodes(told, nodes)
    restart = _time("restart", spec.restart)
    job = Job(
        work=_time("work", spec.work), nodes=nodes, least=spec.least, unit=spec.unit, spare=spec.spare, gpus=gpus,
        margin=_margin(spec, kinds), restart=restart, regroup=restart, step=_time("step", spec.step) if spec.step else 0.0,
    )  # fmt: skip
    least = spec.least or nodes
    if not 1 <= least <= nodes:
        raise GpusimError(f"a job of {nodes} nodes cannot go on with {spec.least} at least", hint=f"1 to {nodes}")
    room = least * sum(machine.profile(gpu).memory.capacity.value for gpu in machine.gpus[:gpus])
    if state > room:
        has = show_bytes(int(room))
        raise GpusimError(f"{show_bytes(state)} of state do not fit the {least * gpus} GPUs, which have {has}")
    of = costs.CheckpointCosts(machine, gpus, said, state, _storage(spec))
    sizes = range(nodes, least - 1, -spec.unit) if spec.unit > 0 else (nodes,)
    cost = replace(of.of(nodes, hosts), fewer={n: of.of(n, hosts) for n in sizes if n < nodes})
    if steps is not None:
        job = replace(job, pace=steps.paces(nodes, least, spec.unit))
        if said.speed is None:
            cost = _slowed(cost, of.beside(steps, nodes))
    policy = of_registry(*spec.use).get("checkpoint", interval_word(spec.every))
    kills: list[OomKill] = []
    if spec.host:
        copies = 0.0 if said.name == "sync" else 2 * state / least * of.keeps
        ram, detect = machine.host_memory(machine.gpus[0]), _time("detect", spec.detect)
        full, kills = host_failure(spec.host, ram, copies, said.agent, detect)
        kinds = (*kinds, full) if full else kinds
    return PreparedRun(spec, machine, job, cost, kinds, told, policy, state, state / nodes, tuple(kills))


def _slowed(cost: CheckpointCost, speed: tuple[float, float]) -> CheckpointCost:
    return replace(cost, speed=speed, fewer={n: replace(each, speed=speed) for n, each in cost.fewer.items()})


def _steps(spec: LongRunSpec, nodes: int) -> SimulatedSteps | None:
    """Steps of the program on the nodes that work; None: no program is named."""
    if not spec.program:
        if spec.parallel:
            raise GpusimError("--parallel divides a program, and none is named", hint="--program llama-1b-train")
        return None
    match, word = SEVERAL.fullmatch(spec.machine.strip()), spec.machine
    if spec.spare and match is None:
        raise GpusimError("spare nodes are of so many equal machines", hint="write 4 x hgx-h100")
    if match is not None and nodes < int(match[1]):
        word = f"{nodes} x {match[2]}" if nodes > 1 else match[2].partition(" over ")[0]
    return SimulatedSteps(spec.program, spec.parallel, word)


def _context(spec: LongRunSpec, machine: Topology, gpus: int, steps: SimulatedSteps | None) -> FailureContext:
    def keeps(name: str, left: float) -> float:
        if steps is None:
            what = "a network card" if name == "nic" else "a link"
            raise GpusimError(f"how much the work loses with {what} that is slow or gone depends on the program",
                              hint=f"--program llama-1b-train --parallel zero=3, or {name}(speed=0.9)")  # fmt: skip
        return steps.keeps((name, left))

    inside = machine.host[machine.gpus[0]]
    here = set(machine.gpus[:gpus])
    wires = [link for link in machine.links.values() if link.kind in DIRECT and link.a in here]
    between = [link for link in wires if machine.nodes[link.b].kind == "gpu"]
    return FailureContext(
        gpus, sum(machine.host[card] == inside for card in machine.of_kind("nic")),
        sum(link.count for link in between) // 2 or sum(link.count for link in wires),
        _time("detect", spec.detect), _time("repair", spec.repair), keeps, bool(between),
    )  # fmt: skip


def _margin(spec: LongRunSpec, kinds: tuple[FailureKind, ...]) -> float:
    """Bytes of a GPU's memory that the program does without."""
    if spec.margin:
        found = float(_bytes("margin", spec.margin))
        if found < 0:
            raise GpusimError(f"a margin of {spec.margin} is none", hint="--margin '2 GiB'")
        return found
    if any(kind.effect == "shrink" for kind in kinds):
        raise GpusimError("pages retire until the program has too little memory: of how much can a GPU do without?",
                          hint="--margin '2 GiB'")  # fmt: skip
    return math.inf


def _storage(spec: LongRunSpec) -> float:
    """bytes/ns that the storage takes from all nodes together."""
    if not spec.storage:
        hint = "--storage '100 GB/s', of all nodes together"
        raise GpusimError("nothing says how fast the storage takes checkpoints", hint=hint)
    try:
        rate = float(parse(spec.storage, RATE)) / 1e9
    except UnitError as error:
        raise GpusimError(f"storage: {error.message}", hint=error.hint) from None
    if rate <= 0:
        raise GpusimError(f"a storage of {spec.storage} takes no checkpoint")
    return rate


def _bytes(name: str, word: str) -> int:
    try:
        return int(parse(word, BYTES))
    except UnitError as error:
        raise GpusimError(f"{name}: {error.message}", hint=error.hint) from None


def _hosts(word: str) -> tuple[Topology, int, int]:
    """(machine, hosts, GPUs of each); of many equal machines two are enough to know how they copy."""
    match = SEVERAL.fullmatch(word.strip())
    times = int(match[1]) if match else 1
    machine = build.load(f"2 x {match[2]}" if match and times > 2 else word)
    if times > 2 and len(set(machine.host.values())) == 1:  # GPUs of one host
        machine, times = build.load(word), 1
    if len({machine.profile(gpu).name for gpu in machine.gpus}) > 1:
        raise GpusimError(f"'{machine.name}' has GPUs of several kinds, and a long run is modelled on equal nodes")
    hosts = Counter(machine.host[gpu] for gpu in machine.gpus)
    if len(set(hosts.values())) > 1:
        raise GpusimError(f"the hosts of '{machine.name}' have different numbers of GPUs, which a long run does not model")
    count, each = len(hosts) * times // 2 if times > 2 else len(hosts), next(iter(hosts.values()))
    if each > _BOARD and machine.of_kind("nvswitch") and match is not None:
        parts = [(name, build.load(name)) for name in sorted(build.names(), key=lambda name: not name.startswith("hgx"))]
        of = [name for name, one in parts if len(one.gpus) == _BOARD and {one.profile(g).name for g in one.gpus} == {match[2]}]
        hint = f"write {each // _BOARD} x {of[0]}" if of and each % _BOARD == 0 else "name machines with a network"
        raise GpusimError(f"'{word}' is one host of {each} GPUs, which fail together, and boards have {_BOARD}", hint=hint)
    return machine, count, each


def state_bytes(word: str) -> int:
    """"1.1 TB", or a model of the zoo with 14 bytes for each parameter.  Raises GpusimError."""
    models = {entry.name: entry.parameters for entry in ENTRIES}
    if word in models:
        return models[word] * BYTES_OF_PARAMETER
    try:
        found = int(parse(word, BYTES))
    except UnitError:
        hint = (suggest(word, models) if word[:1].isalpha() else "") or "1.1 TB"
        raise GpusimError(f"'{word}' is neither a size nor a model of the zoo", hint=hint) from None
    if found < 1:
        raise GpusimError("a state of no bytes needs no checkpoint")
    return found


def interval_word(word: str) -> str:
    """"30 min" means a fixed time; anything else names a policy."""
    if not word.strip()[:1].isdigit() and word.strip()[:1] not in ("-", "+", "."):
        return word
    found = _time("every", word)
    if found == 0:
        raise GpusimError("a checkpoint every 0 s leaves no time to work", hint="--every '30 min', or daly")
    return f"every(seconds={found / 1e9!r})"


def _time(name: str, word: str) -> float:
    try:
        found = float(parse(word, TIME))
    except UnitError as error:
        raise GpusimError(f"{name}: {error.message}", hint=error.hint) from None
    if found < 0 or (found == 0 and name in ("work", "step")):
        raise GpusimError(f"{name}: a run cannot have {word}", hint="write a time above 0" if name != "repair" else "24 h")
    return found


def with_interval(run: PreparedRun, every: str) -> PreparedRun:
    """The same run with another interval or policy."""
    policy = of_registry(*run.spec.use).get("checkpoint", interval_word(every))
    return replace(run, spec=replace(run.spec, every=every), policy=policy)


def hours(ns: float) -> float:
    """Of ns; math.inf stays."""
    return ns / 3.6e12 if math.isfinite(ns) else ns
