"""What a recording says of a call of NCCL: which collective, of which group, how many bytes.

PyTorch writes it as arguments of a kernel and of the host's `record_param_comms` ("Collective name", "In msg nelems",
"Process Group Ranks", ...), in execution traces as inputs of that node.  A Kineto trace from before 2024 has the name and
the tensors only.
Source: pytorch/pytorch, torch/csrc/profiler/util.cpp, saveNcclMeta; torch/csrc/distributed/c10d/ParamCommsUtils.hpp.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from gpusim.trace.exchanges import RECEIVE, SEND

_NAMES = {
    "allreduce": "all_reduce", "allgather": "all_gather", "allgatherbase": "all_gather", "allgatherintotensor": "all_gather",
    "reducescatter": "reduce_scatter", "reducescatterbase": "reduce_scatter", "reducescattertensor": "reduce_scatter",
    "broadcast": "broadcast", "reduce": "reduce", "alltoall": "all_to_all", "alltoallv": "all_to_all",
    "alltoallbase": "all_to_all", "alltoallsingle": "all_to_all", "barrier": "barrier", "send": SEND, "recv": RECEIVE,
}  # fmt: skip
"""Names without underscores and "coalesced" -> kinds of `trace.exchanges`."""
_BYTES = {
    "byte": 1, "char": 1, "bool": 1, "half": 2, "bfloat16": 2, "short": 2, "int": 4, "float": 4, "long": 8, "double": 8,
    "float8_e4m3fn": 1, "float8_e5m2": 1, "float8_e4m3fnuz": 1, "float8_e5m2fnuz": 1, "complexfloat": 8, "complexdouble": 16,
}  # fmt: skip
"""Of an element, by PyTorch's names of scalar types."""
NCCL_KERNEL = re.compile(r"^(nccl|rccl)", re.IGNORECASE)


class CollectiveCall(NamedTuple):
    """One rank's call.

    kind      of `trace.exchanges`
    group     the communicator's name, "" where it has none
    desc      what the program calls it, "" where it does not
    ranks     of the group in its order; () where the recording does not list them
    ranked    how many they are, 0 where unknown
    sent      bytes that the rank comes with
    received  bytes that it has in the end, -1 where unknown
    sequence  the call's number in its group, -1 where unknown
    peer      of a send or receive the other rank, -1 where unknown
    """

    kind: str
    group: str = ""
    desc: str = ""
    ranks: tuple[int, ...] = ()
    ranked: int = 0
    sent: int = 0
    received: int = -1
    sequence: int = -1
    peer: int = -1


def kind_of(name: str) -> str:
    """The kind that PyTorch calls so ("_allgather_base", "nccl:all_to_all"); "" for what is none of them, or waits for one."""
    plain = name.rpartition(":")[2].lower().replace("_coalesced", "").replace("_", "").partition(" ")[0]
    return _NAMES.get(plain, "")


def of_arguments(args: Mapping[str, Any]) -> CollectiveCall | None:
    """Of the arguments of a Kineto event; None where they say nothing of a collective.

    Raises ValueError or TypeError for numbers that are none.
    """
    kind = kind_of(str(args.get("Collective name", "")))
    size = _BYTES.get(str(args.get("dtype", "")).lower(), 0)
    if not kind or not (size or kind == "barrier"):
        return None
    peer = args.get("Dst Rank" if kind == SEND else "Src Rank", -1)
    return CollectiveCall(
        kind, str(args.get("Process Group Name", "")), str(args.get("Process Group Description", "")), listed_ranks(args),
        int(args.get("Group size", 0)), int(args.get("In msg nelems", 0)) * size, int(args.get("Out msg nelems", 0)) * size,
        int(args.get("Seq", -1)), int(peer) if kind in (SEND, RECEIVE) else -1,
    )  # fmt: skip


def listed_ranks(args: Mapping[str, Any]) -> tuple[int, ...]:
    """The ranks of the group, where all are listed or evenly spaced; a long list is cut short."""
    text, size = str(args.get("Process Group Ranks", "")), int(args.get("Group size", 0))
    if text and "..." not in text and (found := tuple(int(n) for n in re.findall(r"\d+", text))) and len(found) == size:
        return found
    start, stride = int(args.get("Global rank start", -1)), int(args.get("Global rank stride", 0))
    if start >= 0 and stride > 0 and size > 0 and not text.replace("[", "").replace("]", ""):
        return tuple(range(start, start + stride * size, stride))
    return ()


def of_tensors(name: str, sizes: Sequence[int]) -> CollectiveCall | None:
    """Of a host's range "nccl:all_reduce" and the bytes of its tensors, which are what the rank comes with."""
    kind = kind_of(name)
    return CollectiveCall(kind, sent=sum(sizes)) if kind and sizes and kind not in (SEND, RECEIVE) else None


def of_node(inputs: Sequence[Any], attrs: Mapping[str, Any], sent: int, received: int) -> CollectiveCall | None:
    """Of a node `record_param_comms` of an execution trace; bytes are those of its tensors.

    Schemas up to 1.0.1 know no names of groups, only an address.  Raises ValueError or TypeError.
    """
    named = next((i for i, value in enumerate(inputs) if isinstance(value, str) and kind_of(value)), -1)
    if named < 0:
        return None
    kind, group = kind_of(inputs[named]), inputs[named - 2] if named > 1 else 0  # before it: number, group, rank
    words = {
        "Group size": attrs.get("pg_size", 0), "Global rank start": attrs.get("global_rank_start", -1),
        "Global rank stride": attrs.get("global_rank_stride", 0), "Process Group Ranks": "",
    }  # fmt: skip
    peer = int(attrs.get("dst_rank" if kind == SEND else "src_rank", -1)) if kind in (SEND, RECEIVE) else -1
    number = inputs[named - 3] if named > 2 else -1
    name, desc = group if isinstance(group, list) and len(group) == 2 else ("", "")
    sequence = number[0] if isinstance(number, list) and number else number
    return CollectiveCall(
        kind, str(name), str(desc), listed_ranks(words), int(attrs.get("pg_size", 0)), sent, received,
        sequence if type(sequence) is int else -1, peer,
    )  # fmt: skip


def known_of(a: CollectiveCall | None, b: CollectiveCall | None) -> CollectiveCall | None:
    """What two notes of one call say together, the first first."""
    if a is None or b is None:
        return a or b
    more = b._asdict()
    return a._replace(**{name: more[name] for name, value in a._asdict().items() if value in ("", (), 0, -1)})
