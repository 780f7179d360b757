"""Does a Chakra graph become the operators, streams and waits that its nodes and dependencies say?"""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pytest
from chakra_graphs import ALL_GATHER, ALL_REDUCE, COLLECTIVE, COMP, RECEIVE, SEND, field, graph, node, varint

from gpusim.base.errors import TraceError
from gpusim.programs.ranks.folder import import_ranks
from gpusim.programs.recordings import import_trace
from gpusim.trace.trace import COLLECTIVE as EXCHANGE
from gpusim.trace.trace import HOST_WORK, KERNEL, OP, RECORD, SYNC, WAIT, Trace

HERE, THERE = {"is_cpu_op": True}, {"is_cpu_op": False}


def events(trace: Trace) -> list[tuple[int, int]]:
    return [(int(kind), int(stream)) for kind, stream in zip(trace.kind, trace.stream, strict=True)]


@pytest.mark.parametrize("pack", [False, True])
def test_nodes_are_operators_in_streams_that_wait(pack: bool, tmp_path: Path) -> None:
    data = graph(
        node(9, "step", COMP, [4], 5, **HERE), node(1, "mm", COMP, us=7, **THERE),
        node(4, "ncclAllReduce", COLLECTIVE, [1], 11, comm_type=ALL_REDUCE, comm_size=64, pg_name="tp", **THERE),
        node(5, "add", COMP, [4, 1], **THERE, num_ops=10**6, tensor_size=256), node(2, "setup", 1),
    )  # fmt: skip
    path = tmp_path / "chakra.3.et"
    path.write_bytes(gzip.compress(data) if pack else data)
    trace = import_trace(path)
    assert trace.meta["format"] == "chakra" and trace.tensors == 0
    assert [trace.op_names[n] for n in trace.op] == ["mm", "ncclAllReduce", "add", "step"]
    assert list(trace.activity) == [KERNEL, EXCHANGE, KERNEL, HOST_WORK]
    assert list(trace.duration) == [7000, 11000, -1, 5000] and list(trace.flops) == [0, 0, 1e6, 0]
    assert list(trace.read_bytes) == [0, 64, 256, 0]
    assert events(trace) == [(OP, 0), (RECORD, 0), (WAIT, 1), (OP, 1), (RECORD, 1), (WAIT, 0), (OP, 0), (SYNC, 0), (OP, 0)]


def test_the_feeders_json_is_read_too(tmp_path: Path) -> None:
    nodes = [
        {"Id": 7, "Name": "b", "NodeType": 4, "data_deps": [3], "runtime": 2, "is_cpu_op": False},
        {"Id": 3, "Name": "a", "NodeType": 4, "ctrlDeps": [1], "data_deps": [], "runtime": 1, "is_cpu_op": False},
    ]
    path = tmp_path / "graph.json"
    path.write_text(json.dumps({"workload_graph": nodes, "workload_name": "w"}))
    trace = import_trace(path)
    assert [trace.op_names[n] for n in trace.op] == ["a", "b"] and list(trace.duration) == [1000, 2000]


def test_a_graph_that_was_not_linked_has_its_order_in_controls(tmp_path: Path) -> None:
    path = tmp_path / "x.et"
    path.write_bytes(graph(node(1, "b", COMP, us=1, **THERE) + field(4, varint(2)), node(2, "a", COMP, us=1, **THERE)))
    assert [import_trace(path).op_names[n] for n in import_trace(path).op] == ["a", "b"]


def ring(folder: Path, ranks: int) -> Path:
    """Each rank sends to the next, then receives from the one before."""
    folder.mkdir(exist_ok=True)
    for rank in range(ranks):
        to, source = (rank + 1) % ranks, (rank - 1) % ranks
        (folder / f"ring.{rank}.et").write_bytes(graph(
            node(1, "send", SEND, comm_dst=to, comm_size=64, **THERE),
            node(2, "receive", RECEIVE, [1], comm_src=source, comm_size=64, **THERE),
            node(3, "add", COMP, [2], 4, **THERE),
        ))  # fmt: skip
    return folder


def test_a_ring_of_sends_ends_since_a_send_does_not_wait_for_its_receiver(tmp_path: Path) -> None:
    made = import_ranks(ring(tmp_path / "ring", 4))
    assert sorted(one.ranks for one in made.check()) == [(0, 1), (1, 2), (2, 3), (3, 0)]
    assert {one.size for one in made.check()} == {64} and len({program.content_hash for program in made.programs}) == 4


def test_groups_stand_in_a_file_beside_the_graphs(tmp_path: Path) -> None:
    for rank in range(4):
        one = node(1, "g", COLLECTIVE, comm_type=ALL_GATHER, comm_size=8, pg_name="low" if rank < 2 else "high", **THERE)
        (tmp_path / f"t.{rank}.et").write_bytes(graph(one))
    both = [("all_gather", 16, (0, 1)), ("all_gather", 16, (2, 3))]
    assert [(one.kind, one.size, one.ranks) for one in import_ranks(tmp_path).check()] == both, "those that call it"
    (tmp_path / "t.3.et").unlink()
    (tmp_path / "groups.json").write_text(json.dumps({"low": [0, 1], "high": [2, 3]}))
    made = import_ranks(tmp_path)
    assert made.absent == {3} and [(one.kind, one.size, one.ranks) for one in made.check()] == both


@pytest.mark.parametrize(
    ("nodes", "said"),
    [
        ([node(1, "a", COMP, [2], **THERE), node(2, "b", COMP, [1], **THERE)], "node 1 depends on itself, through others"),
        ([node(1, "a", COMP), node(1, "b", COMP)], "two nodes have the id 1"),
        ([node(1, "a", 1)], "the graph has no operators"),
        ([node(1, "a", COLLECTIVE, comm_size="8")], "node 1 has 'comm_size' 8, which is no number of one"),
        ([node(1, "a", COMP), b"\xff\xff"], "node 1, up to byte "),
    ],
)
def test_a_wrong_graph_is_a_sentence(nodes: list[bytes], said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.et"
    path.write_bytes(graph(*nodes))
    with pytest.raises(TraceError) as error:
        import_trace(path)
    assert str(error.value).startswith(str(path)) and said in str(error.value), str(error.value)
