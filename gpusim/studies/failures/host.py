"""The processes of a node and its memory, in words, and the failure that follows where they fill it.

    rank 8 x 24 GB, loader 64 x 4 GB + 20 MB/h, agent 1 x 5 GB adj=-500, logs 1 x 2 GB, limit 900 GB

`rank`, `loader` and `agent` are the job's, and live in its cgroup where there is a limit; others are the host's.  The copies of
checkpoints that stay in host memory come on top: they are the agent's, or the ranks' where there is none.
"""

from __future__ import annotations

import re
from dataclasses import replace

from gpusim.base.errors import GpusimError, UnitError
from gpusim.base.units import BYTES, parse, show_bytes
from gpusim.engine.failures.oom_killer import HostMemory, HostProcess, OomKill, kills
from gpusim.engine.failures.run import FailureKind

RANK, LOADER, AGENT = "rank", "loader", "agent"
JOB = (RANK, LOADER, AGENT)
HOUR = 3600e9
_PROCESS = re.compile(r"([A-Za-z]\w*)\s+(?:(\d{1,5})\s*x\s+)?(.+?)(?:\s*\+\s*(.+?)\s*/\s*h)?(?:\s+adj=(-?\d+))?")
_LIMIT = re.compile(r"limit(\(group=1\))?\s+(.+)")
_SWAP = re.compile(r"swap\s+(.+)")


def processes(text: str, ram: float) -> tuple[HostMemory, list[HostProcess]]:
    """What the words say.  Raises GpusimError."""
    host, found = HostMemory(ram), list[HostProcess]()
    for part in filter(None, map(str.strip, text.split(","))):
        if match := _LIMIT.fullmatch(part):
            host = replace(host, limit=_bytes(match[2]), group=bool(match[1]))
        elif match := _SWAP.fullmatch(part):
            host = replace(host, swap=_bytes(match[1]))
        elif match := _PROCESS.fullmatch(part):
            adj = int(match[5] or 0)
            if not -1000 <= adj <= 1000:
                raise GpusimError(f"'{part}': oom_score_adj is -1000 to 1000")
            grows = _bytes(match[4]) / HOUR if match[4] else 0.0
            one = HostProcess(match[1], _bytes(match[3]), grows, adj, match[1] in JOB)
            found += [one] * int(match[2] or 1)
        else:
            raise GpusimError(f"'{part}' is no process of a host", hint="write loader 64 x 4 GB + 20 MB/h, or limit 900 GB")
    if not any(one.name == RANK for one in found):
        raise GpusimError("the processes of a host have no rank", hint="write rank 8 x 24 GB")
    if host.limit > ram + host.swap:
        host = replace(host, limit=ram + host.swap)
    return host, found


def _bytes(text: str) -> float:
    try:
        found = float(parse(text, BYTES))
    except UnitError as error:
        raise GpusimError(f"host: {error.message}", hint=error.hint) from None
    if found < 0:
        raise GpusimError(f"host: a process cannot have {text}")
    return found


def with_copies(found: list[HostProcess], copies: float, agent: bool) -> list[HostProcess]:
    """With the bytes of checkpoints that the host keeps, of the agent or of all ranks alike."""
    if agent and not any(one.name == AGENT for one in found):
        found = [*found, HostProcess(AGENT, 0.0)]
    keepers = [one.name == (AGENT if agent else RANK) for one in found]
    each = copies / sum(keepers)
    return [replace(one, memory=one.memory + each) if keeps else one for one, keeps in zip(found, keepers, strict=True)]


def host_failure(
    text: str, ram: float, copies: float, agent: bool, detect: float
) -> tuple[FailureKind | None, list[OomKill]]:
    """The failure of the job when its host's memory is full, and all that Linux kills up to then.

    Raises GpusimError where memory is full before the first step.
    """
    host, found = processes(text, ram)
    found = with_copies(found, copies, agent)
    killed = kills(host, found)
    if not killed or not killed[-1].process.job:
        return None, killed
    last = killed[-1]
    if last.at < 1:
        wanted = sum(one.memory for one in found if one.job or not last.cgroup)
        has = host.limit if last.cgroup else ram + host.swap
        raise GpusimError(
            f"the processes of a node take {show_bytes(wanted)} of {show_bytes(has)}: Linux kills {last.process.name} (score "
            f"{last.score:.0f}) before the first step", hint="fewer loaders, fewer copies of checkpoints, or a larger limit",
        )  # fmt: skip
    lost = last.whole or last.process.name == AGENT or not agent
    return FailureKind(name="host_memory", after=last.at, effect="restart", host_lost=lost, detect=detect), killed


def told(killed: list[OomKill]) -> list[str]:
    """Sentences about what is killed."""
    said = []
    for one in killed:
        full = "the job's cgroup" if one.cgroup else "a host's memory"
        ends = " with all of its cgroup" if one.whole else ", which ends the program" if one.process.job else ""
        said.append(
            f"after {one.at / HOUR:.3g} h of running {full} is full: Linux kills {one.process.name}, of "
            f"{show_bytes(one.process.memory)} with a score of {one.score:.0f}{ends}"
        )
    return said
