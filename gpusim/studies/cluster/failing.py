"""What fails on a cluster, in the words of `gpusim failures`, and what jobs do about it."""

from __future__ import annotations

import math
import re
from pathlib import Path
from typing import Any

from gpusim.base.errors import GpusimError
from gpusim.base.units import TIME, parse
from gpusim.engine.cluster.breakdowns import ALL, BEYOND, WITHIN, ClusterFailure, ToldBreakdown
from gpusim.engine.cluster.failing import FailingCluster
from gpusim.engine.failures.run import FailureKind, ToldFailure
from gpusim.policies.clusters import ClusterNode, ClusterSpec
from gpusim.policies.forms import CheckpointPolicy
from gpusim.policies.registry import of
from gpusim.programs.arrivals.words import cluster_of
from gpusim.studies.failures.kinds import FailureContext, checked_nodes, kinds_of
from gpusim.studies.failures.setup import interval_word

ROUND = "round"  # a checkpoint at the end of each
_REACH = {"nic": BEYOND, "link": WITHIN}
_KEEPS = "write {}; gpusim failures --program finds it for a program"


def failing(
    cluster: ClusterSpec, *, failures: str, every: str, save: str, detect: str, repair: str, spare: str,
    round_: str = "360 s", seed: int = 0,
    use: tuple[Any, ...] = (), base: Path | None = None,
) -> FailingCluster | None:  # fmt: skip
    """None: nothing fails.  Raises GpusimError for words that say nothing, and for those that need failures."""
    if not failures:
        if said := next((name for name, word in (("every", every), ("spare", spare)) if word), ""):
            raise GpusimError(f"--{said} is for nodes that fail, and nothing fails", hint="--failures 'gpu 50000 h', or llama3")
        return None
    if not every:
        hint = "--every '30 min', daly, round, or never"
        raise GpusimError("nothing says how often jobs save what they have done", hint=hint)
    stop = seconds("save", save)
    word = str((base or Path()) / failures) if failures.strip().endswith(".csv") else failures
    kinds, told = _kinds(word, cluster, seconds("detect", detect) * 1e9, seconds("repair", repair) * 1e9)
    checked_nodes(told, len(cluster.nodes), "the cluster")
    names = [kind.name for kind in kinds]
    if (pages := [kind.name for kind in kinds if kind.bytes]) and any(math.isinf(node.memory) for node in cluster.nodes):
        hint = "a type of gpusim profiles, or a table of nodes with memory_mib"
        raise GpusimError(f"{pages[0]} takes memory from GPUs, and the nodes do not say how much they have", hint=hint)
    policy: CheckpointPolicy | None = None
    if every.strip() != "never":
        policy = of(*use).get("checkpoint", interval_word(round_ if every.strip() == ROUND else every))
        if not stop and policy.entry.builtin and policy.name != "every":
            said = f"{policy.name} has no best interval where a checkpoint stops a job for 0 s"
            raise GpusimError(said, hint="--save '30 s'")
    return FailingCluster(
        kinds=kinds, told=tuple(ToldBreakdown(each.at / 1e9, names.index(each.kind), each.node) for each in told),
        spares=_spares(spare, cluster, base), policy=policy, save=stop, seed=seed,
    )  # fmt: skip


def _kinds(
    word: str, cluster: ClusterSpec, detect: float, repair: float
) -> tuple[tuple[ClusterFailure, ...], tuple[ToldFailure, ...]]:
    """The rates of nodes by their number of GPUs; the cards of a node count as one, and so do its wires."""

    def keeps(name: str, left: float) -> float:
        what = f"a {name} at {left:g} of its rate" if left else f"a dead {name}"
        words = f"{name}(speed=0.93, lasts=1 h)" if left else f"{name}(speed=0.98), or {name}(then=replace)"
        raise GpusimError(f"a cluster does not know what {what} leaves of its jobs' pace", hint=_KEEPS.format(words))

    sizes = sorted({node.gpus for node in cluster.nodes})
    each: list[tuple[FailureKind, ...]] = []
    told: tuple[ToldFailure, ...] = ()
    for gpus in sizes:
        found, told = kinds_of(word, FailureContext(gpus, 1, 1, detect, repair, keeps))
        each.append(found)
    return tuple(_one(kinds, sizes) for kinds in zip(*each, strict=True)), told


def _one(kinds: tuple[FailureKind, ...], sizes: list[int]) -> ClusterFailure:
    kind = kinds[0]
    reach = next((reach for name, reach in _REACH.items() if kind.name.startswith(name)), ALL) if kind.speed < 1.0 else ALL
    rate = 1e9 / kind.between
    rates = {gpus: one.each * rate for gpus, one in zip(sizes, kinds, strict=True)} if kind.each else {}
    return ClusterFailure(
        name=kind.name, rates=rates, of_jobs=0.0 if kind.each else rate, one_gpu=kinds[-1].each == sizes[-1] > 1,
        leaves=kind.effect == "lose_node", group=kind.group, detect=kind.detect / 1e9, repair=kind.repair / 1e9,
        speed=kind.speed, lasts=kind.lasts / 1e9, reach=reach, kills=kind.effect not in ("slow", "shrink"), bytes=kind.bytes,
    )  # fmt: skip


def _spares(word: str, cluster: ClusterSpec, base: Path | None) -> tuple[ClusterNode, ...]:
    """"2": so many nodes, where all are equal; else as `--gpus`."""
    if not word.strip():
        return ()
    there = dict.fromkeys(cluster.nodes)
    if re.fullmatch(r"\s*\d{1,6}\s*", word):
        if len(there) > 1:
            raise GpusimError(f"{word} spare nodes of which kind? The cluster has several", hint="write 2 x 8 v100, 1 x 4 p100")
        return tuple(there) * int(word)
    found = cluster_of(word, base).nodes
    if other := next((node for node in found if node not in there), None):
        have = ", ".join(f"{node.gpus} {node.kind}" for node in there)
        raise GpusimError(f"a spare node of {other.gpus} {other.kind} is in the place of none: nodes have {have}")
    return found


def seconds(name: str, word: str) -> float:
    """Of a time in words.  Raises GpusimError with the option's name."""
    try:
        return float(parse(word, TIME)) / 1e9
    except GpusimError as error:
        raise GpusimError(f"{name}: {error.message}", hint=error.hint) from None
