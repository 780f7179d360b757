"""What is free on a cluster: whole GPUs of each node, parts of GPUs, memory and processors; and places for a job.

Parts of a GPU are whole thousandths, so that what was taken comes back exactly.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from gpusim.machine import mig
from gpusim.policies.clusters import F64, I64, ArrivingJob, ClusterSpec, Part

BOOL = npt.NDArray[np.bool_]
WHOLE = 1000  # parts of a GPU
RULES = ("first", "best", "worst")


class FreeGpus:
    """GPUs and nodes by number.

    room    free parts of each GPU; whole: free GPUs of each node, without parts
    memory  free bytes of each GPU; host, cpus: of each node
    total   free parts of each type
    slices  of each GPU that is cut: (MIG slice, where it begins), busy ones only
    broken  nodes that have failed and are not back; lost: parts of each of their GPUs that nothing can have, in all `away`
    """

    def __init__(self, cluster: ClusterSpec) -> None:
        nodes = cluster.nodes
        self.cluster = cluster
        self.size: I64 = np.array([node.gpus for node in nodes], np.int64)
        self.start: I64 = np.concatenate([[0], np.cumsum(self.size)])
        self.node_of: list[int] = np.repeat(np.arange(len(nodes)), self.size).tolist()
        self.kind_of = [nodes[i].kind for i in self.node_of]
        self.room: I64 = np.full(int(self.start[-1]), WHOLE, np.int64)
        self.whole: I64 = self.size.copy()
        self.memory: F64 = np.repeat([node.memory for node in nodes], self.size)
        self.host: F64 = np.array([node.host for node in nodes], np.float64)
        self.cpus: F64 = np.array([node.cpus for node in nodes], np.float64)
        self.all_memory, self.all_host, self.all_cpus = self.memory.copy(), self.host.copy(), self.cpus.copy()
        self.nodes_of = {kind: np.array([i for i, n in enumerate(nodes) if n.kind == kind], np.int64) for kind in cluster.types}
        self.gpus_of = {kind: np.flatnonzero(np.array(self.kind_of) == kind) for kind in cluster.types}
        self.largest = {kind: int(self.size[rows].max()) for kind, rows in self.nodes_of.items()}
        self.total = {kind: len(rows) * WHOLE for kind, rows in self.gpus_of.items()}
        self.slices: dict[int, list[tuple[str, int]]] = {}
        self.broken: set[int] = set()
        self.lost: dict[int, int] = {}
        self.away = 0

    def gpus_on(self, node: int) -> range:
        """By number."""
        return range(int(self.start[node]), int(self.start[node + 1]))

    def works(self, gpus: tuple[int, ...]) -> bool:
        """Whether none of them is on a node that has failed."""
        return not self.broken or self.broken.isdisjoint(self.node_of[gpu] for gpu in gpus)

    def breaks(self, node: int) -> None:
        """Nothing can have what is free on the node; called again when a job there has given back its part."""
        self.broken.add(node)
        for gpu in self.gpus_on(node):
            room = int(self.room[gpu])
            self.lost[gpu] = self.lost.get(gpu, 0) + room
            self.whole[node] -= int(room == WHOLE)
            self.room[gpu] = 0
            self.away += room
            self.total[self.kind_of[gpu]] -= room

    def mended(self, node: int) -> None:
        """The node is back, or another is in its place."""
        self.broken.discard(node)
        whole = self.cluster.nodes[node].memory
        for gpu in self.gpus_on(node):
            if self.all_memory[gpu] < whole:  # another, which has lost none
                self.memory[gpu] += whole - self.all_memory[gpu]
                self.all_memory[gpu] = whole
            room = self.lost.pop(gpu, 0)
            self.room[gpu] += room
            self.whole[node] += int(room > 0 and self.room[gpu] == WHOLE)
            self.away -= room
            self.total[self.kind_of[gpu]] += room

    def shrinks(self, gpu: int, bytes_: float) -> bool:
        """The GPU has so many bytes less from now on; False: what is there has no room any more."""
        self.memory[gpu] -= bytes_
        self.all_memory[gpu] -= bytes_
        return bool(self.memory[gpu] >= 0.0)

    def take(self, job: ArrivingJob, gpus: tuple[int, ...], sign: int = -1, part: Part | None = None) -> None:
        """The job has these GPUs, or this part of them; sign 1: it gives them back."""
        parts, memory = parts_of(job, part), job.memory
        if isinstance(part, str):
            memory = self._cut(gpus[0], part, sign)
        for gpu in gpus:
            node = self.node_of[gpu]
            before = self.room[gpu] == WHOLE
            self.room[gpu] += sign * parts
            self.whole[node] += int(self.room[gpu] == WHOLE) - int(before)
            if memory:
                self.memory[gpu] += sign * memory
        self.total[self.kind_of[gpus[0]]] += sign * parts * len(gpus)
        if job.host or job.cpus:
            for node in dict.fromkeys(self.node_of[gpu] for gpu in gpus):
                self.host[node] += sign * job.host
                self.cpus[node] += sign * job.cpus

    def _cut(self, gpu: int, name: str, sign: int) -> float:
        """Lays a slice, or takes one like it away: its bytes."""
        lying = self.slices.setdefault(gpu, [])
        if sign < 0:
            place = mig.beside(self.kind_of[gpu], lying, name)
            assert place is not None, "asked before"
            lying.append((name, place))
        else:
            lying.remove(next(each for each in lying if each[0] == name))
        return float(mig.find(self.kind_of[gpu], name).memory or 0.0)

    def why_not(self, job: ArrivingJob, gpus: tuple[int, ...], part: Part | None = None) -> str:
        """What speaks against this place; "": nothing.  Raises ProfileError for a MIG slice that the GPU does not offer."""
        if len(gpus) not in job.sizes() or len(set(gpus)) != len(gpus):
            least = f"{job.least} to " if job.elastic else ""
            return f"{len(set(gpus))} GPUs, and it wants {least}{job.gpus}"
        if wrong := [gpu for gpu in gpus if not 0 <= gpu < len(self.room)]:
            return f"GPU {wrong[0]}, and the cluster has {len(self.room)}"
        if len({self.kind_of[gpu] for gpu in gpus}) > 1:
            return "GPUs of several types"
        if not self.works(gpus):
            failed = [gpu for gpu in gpus if self.node_of[gpu] in self.broken]
            return f"GPU {failed[0]}, whose node {self.node_of[failed[0]]} has failed"
        if isinstance(part, str):
            return self._no_slice(job, gpus, part)
        if part is not None and not 0.0 < part <= 1.0:
            return f"GPU {gpus[0]} with a share of {part:g}"
        parts = parts_of(job, part)
        for gpu in gpus:
            if self.slices.get(gpu):
                return f"GPU {gpu}, which is cut into MIG slices"
            if self.room[gpu] < parts:
                free = f"{self.room[gpu] / WHOLE:g} of it is free" if self.room[gpu] else "no part of it is free"
                return f"GPU {gpu}, which is busy: {free}"
            if self.memory[gpu] < job.memory:
                return f"GPU {gpu}, whose memory is taken"
            node = self.node_of[gpu]
            if self.host[node] < job.host or self.cpus[node] < job.cpus:
                return f"node {node}, whose memory or processors are taken"
        return ""

    def has_memory(self, job: ArrivingJob, gpus: tuple[int, ...], gone: ArrivingJob | None = None) -> bool:
        """Whether GPUs and nodes have the memory and processors that it takes; `gone`: once this job has left them."""
        back = gone or ArrivingJob()
        return all(
            self.memory[gpu] + back.memory >= job.memory and self.host[node] + back.host >= job.host
            and self.cpus[node] + back.cpus >= job.cpus
            for gpu, node in ((gpu, self.node_of[gpu]) for gpu in gpus)
        )  # fmt: skip

    def _no_slice(self, job: ArrivingJob, gpus: tuple[int, ...], name: str) -> str:
        if len(gpus) > 1:
            return f"{len(gpus)} GPUs, and a MIG slice is of one"
        gpu, node = gpus[0], self.node_of[gpus[0]]
        one, lying = mig.find(self.kind_of[gpu], name), self.slices.get(gpu, [])
        if self.room[gpu] < WHOLE and not lying:
            return f"GPU {gpu}, which is busy and not cut into MIG slices"
        if mig.beside(self.kind_of[gpu], lying, name) is None:
            return f"GPU {gpu}, where no {name} has room beside {' + '.join(other for other, _ in lying)}"
        if job.memory > (one.memory or 0.0):
            return f"a slice {name}, whose memory is less than it takes"
        if self.host[node] < job.host or self.cpus[node] < job.cpus:
            return f"node {node}, whose memory or processors are taken"
        return ""

    def place(self, job: ArrivingJob, kinds: list[str], rule: str) -> tuple[int, ...]:
        """GPUs of the first of these types where there are some; (): none.

        A job that is no larger than a node has GPUs of one node.  Among nodes, and among GPUs for a part of one, `first`
        takes that with the lowest number, `best` that where least is left over (GPUs, memory, processors, as shares), `worst`
        that where most is.
        """
        parts = parts_of(job)
        for kind in kinds:
            if self.total[kind] < parts * job.gpus:
                continue
            if parts < WHOLE:
                found = self._part(job, kind, rule, parts)
            elif job.gpus <= self.largest[kind]:
                found = self._node(job, kind, rule)
            else:
                found = self._nodes(job, kind)
            if found:
                return found
        return ()

    def _enough(self, job: ArrivingJob, nodes: I64) -> BOOL | bool:
        if not job.host and not job.cpus:
            return True
        enough: BOOL = (self.host[nodes] >= job.host) & (self.cpus[nodes] >= job.cpus)
        return enough

    def _left(self, job: ArrivingJob, nodes: I64) -> F64 | float:
        """Shares of the memory and processors of nodes that would be left over."""
        if not job.host and not job.cpus:
            return 0.0
        with np.errstate(invalid="ignore"):
            host = np.nan_to_num((self.host[nodes] - job.host) / self.all_host[nodes])
            cpus = np.nan_to_num((self.cpus[nodes] - job.cpus) / self.all_cpus[nodes])
        left: F64 = host + cpus
        return left

    def _node(self, job: ArrivingJob, kind: str, rule: str) -> tuple[int, ...]:
        nodes = self.nodes_of[kind]
        whole = self.whole[nodes]
        fits = (whole >= job.gpus) & self._enough(job, nodes)
        if job.memory:
            fits &= self.all_memory[self.start[nodes]] >= job.memory
        node = _chosen(nodes, fits, lambda: (whole - job.gpus) / self.size[nodes] + self._left(job, nodes), rule)
        return () if node < 0 else self._whole_of(node, job.gpus)

    def _whole_of(self, node: int, many: int) -> tuple[int, ...]:
        first, found = int(self.start[node]), []
        for i, room in enumerate(self.room[first : int(self.start[node + 1])].tolist()):
            if room == WHOLE:
                found.append(first + i)
                if len(found) == many:
                    break
        return tuple(found)

    def _part(self, job: ArrivingJob, kind: str, rule: str, parts: int) -> tuple[int, ...]:
        gpus = self.gpus_of[kind]
        nodes: I64 = np.asarray(self.node_of, np.int64)[gpus] if job.host or job.cpus else gpus
        room = self.room[gpus]
        fits = (room >= parts) & self._enough(job, nodes)
        if job.memory:
            fits &= self.memory[gpus] >= job.memory

        def left() -> F64:
            score: F64 = (room - parts) / WHOLE + self._left(job, nodes)
            if job.memory:
                with np.errstate(invalid="ignore"):
                    score = score + np.nan_to_num((self.memory[gpus] - job.memory) / self.all_memory[gpus])
            return score

        gpu = _chosen(gpus, fits, left, rule)
        return () if gpu < 0 else (gpu,)

    def _nodes(self, job: ArrivingJob, kind: str) -> tuple[int, ...]:
        """Of a job larger than a node: the nodes with most free GPUs first."""
        nodes = self.nodes_of[kind]
        usable = (self.whole[nodes] > 0) & self._enough(job, nodes)
        if job.memory:
            usable &= self.all_memory[self.start[nodes]] >= job.memory
        nodes = nodes[usable]
        nodes = nodes[np.argsort(-self.whole[nodes], kind="stable")]
        found: list[int] = []
        for node in nodes.tolist():
            found += self._whole_of(node, min(job.gpus - len(found), int(self.whole[node])))
            if len(found) == job.gpus:
                return tuple(found)
        return ()


def parts_of(job: ArrivingJob, part: Part | None = None) -> int:
    """Of each GPU, in thousandths; of a MIG slice: its sevenths."""
    if isinstance(part, str):
        return WHOLE * mig.sevenths(part) // mig.SEVENTHS
    return round((job.share if part is None else part) * WHOLE)


def _chosen(rows: I64, fits: BOOL, left: Callable[[], F64], rule: str) -> int:
    """The row that fits and is first, or leaves least or most over; -1: none fits."""
    if not fits.any():
        return -1
    if rule == "first":
        return int(rows[np.argmax(fits)])
    score = np.where(fits, left(), np.inf if rule == "best" else -np.inf)
    return int(rows[np.argmin(score) if rule == "best" else np.argmax(score)])
