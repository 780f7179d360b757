"""Are operators of many ranks matched as NCCL matches them, and is what does not match named?"""

from __future__ import annotations

import numpy as np
import pytest

from gpusim.base.errors import GpusimError, TraceError
from gpusim.base.yaml.find import find
from gpusim.programs.ranks.layout import RankLayout
from gpusim.programs.ranks.matching import matched
from gpusim.programs.transforms import apply
from gpusim.trace.build import TraceBuilder
from gpusim.trace.exchanges import parse_exchanges
from gpusim.trace.files import load_trace
from gpusim.trace.trace import COLLECTIVE, Trace


def calls(*texts: str) -> Trace:
    build = TraceBuilder("calls")
    for text in texts:
        build.op("call", (), (), activity=COLLECTIVE, exchange=text)
    return build.finish()


def test_ranks_are_numbered_as_megatron_does() -> None:
    """Two of each: tensor pairs are neighbours, data pairs two apart, stages four apart."""
    layout = RankLayout(data=2, tensor=2, pipeline=2)
    assert layout.ranks == 8
    assert [layout.members(5, group) for group in ("tensor", "data", "pipeline-1")] == [(4, 5), (5, 7), (1,)]
    assert all(layout.rank(*layout.place(rank)) == rank for rank in range(8))
    with pytest.raises(GpusimError, match="rank 5 is of stage 2 of 2, and has no stage 3"):
        layout.members(5, "pipeline+1")


def test_the_nth_calls_of_a_group_belong_together() -> None:
    layout = RankLayout(data=2, tensor=2)
    programs = [calls("all_reduce tensor 8", "all_reduce data 16", "all_reduce tensor 24")] * 4
    found = matched(programs, layout.members)
    assert [(one.size, one.ranks, one.operators) for one in found] == [
        (8, (0, 1), (0, 0)), (24, (0, 1), (2, 2)), (16, (0, 2), (1, 1)), (16, (1, 3), (1, 1)), (8, (2, 3), (0, 0)),
        (24, (2, 3), (2, 2)),
    ]  # fmt: skip


def test_a_send_belongs_to_the_receive_of_the_other_rank() -> None:
    layout = RankLayout(pipeline=2)
    first, last = calls("send pipeline+1 8", "receive pipeline+1 9"), calls("receive pipeline-1 8", "send pipeline-1 9")
    assert [(one.kind, one.ranks, one.operators) for one in matched([first, last], layout.members)] == [
        ("send", (0, 1), (0, 0)), ("send", (1, 0), (1, 1)),
    ]  # fmt: skip


def test_what_does_not_match_is_named() -> None:
    layout = RankLayout(data=2)
    with pytest.raises(TraceError, match=r"rank 0 waits in all_reduce of 8 bytes \(its operator 1\) for rank 1, which never"):
        matched([calls("all_reduce data 8", "all_reduce data 8"), calls("all_reduce data 8")], layout.members)
    with pytest.raises(TraceError, match=r"rank 0 is in all_reduce of 8 bytes .* with rank 1, which is in all_gather of 8"):
        matched([calls("all_reduce data 8"), calls("all_gather data 8")], layout.members)
    with pytest.raises(TraceError, match="which is in all_reduce of 9 bytes"):
        matched([calls("all_reduce data 8"), calls("all_reduce data 9")], layout.members)
    with pytest.raises(TraceError, match="calls group 1,2, of which it is no rank"):
        matched([calls("all_reduce 1,2 8")] * 3, RankLayout(data=3).members)


@pytest.mark.parametrize(("text", "said"), [
    ("all_redoce data 8", "is no kind of exchange"), ("all_reduce data", "is no exchange"),
    ("all_reduce Data 8", "group of ranks"), ("all_reduce data -8", "no number of bytes"),
    ("send pipeline+1 8 + all_reduce data 8", "a batch has sends and receives, and no all_reduce"),
])  # fmt: skip
def test_a_text_that_is_no_exchange_is_refused(text: str, said: str) -> None:
    with pytest.raises(TraceError, match=said):
        parse_exchanges(text)


@pytest.mark.slow
def test_the_programs_of_a_recording_match() -> None:
    gpt2 = load_trace(find("trace", "gpt2-small-train"))
    layout = RankLayout(data=2, tensor=2, pipeline=2, zero=1, microbatches=4)
    stages = [apply(gpt2, layout.transform(stage)) for stage in range(2)]
    programs = [stages[layout.place(rank)[2]] for rank in range(layout.ranks)]
    found = matched(programs, layout.members)
    kinds = {kind: sum(one.kind == kind for one in found) for kind in {one.kind for one in found}}
    assert kinds["send"] == 4 * 4 * 2 * 2, "four pairs of ranks, four microbatches, there and back, two steps"
    assert kinds["reduce_scatter"] and kinds["all_gather"] and kinds["all_reduce"] % 4 == 0
    calls = [text for program in programs for text in np.array(program.exchanges)[program.exchange[program.exchange >= 0]]]
    assert sum(len(one.ranks) for one in found) == sum(len(parse_exchanges(text)) for text in calls)
    assert any(len(parse_exchanges(text)) == 2 for text in calls), "sends and receives in one"


def test_each_exchange_of_a_batch_is_matched() -> None:
    """The middle one of three sends on while it receives, each pair for itself; two names between one pair are kept apart."""
    layout = RankLayout(pipeline=3)
    batch = "send pipeline+1 8 + receive pipeline-1 8"
    found = matched([calls("send pipeline+1 8"), calls(batch), calls("receive pipeline-1 8")], layout.members)
    assert [(one.ranks, one.operators) for one in found] == [((0, 1), (0, 0)), ((1, 2), (0, 0))]
    apart = [calls("send pipeline_b+1 8", "send pipeline_a+1 9"), calls("receive pipeline_a-1 9", "receive pipeline_b-1 8")]
    assert [(one.size, one.operators) for one in matched(apart, RankLayout(pipeline=2).members)] == [(8, (0, 1)), (9, (1, 0))]
