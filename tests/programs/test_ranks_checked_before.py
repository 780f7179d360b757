"""Is what no ranks can do told before anything runs: degrees that do not divide, groups that wait for each other for ever?"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.find import find
from gpusim.cli.app import app
from gpusim.programs.ranks.degrees import attention_heads, check_degrees
from gpusim.programs.ranks.layout import RankLayout
from gpusim.trace.files import load_trace, save_trace
from gpusim.trace.trace import COLLECTIVE

ROOT = Path(__file__).parents[2]


def test_what_a_degree_has_to_divide_is_read_from_the_trace() -> None:
    gpt2, llama = (load_trace(find("trace", name)) for name in ("gpt2-small-train", "llama-1b-train"))
    assert (attention_heads(gpt2), attention_heads(llama)) == ([12], [32])
    for layout in (RankLayout(tensor=4, pipeline=6), RankLayout(data=7)):
        check_degrees(gpt2, layout)
    with pytest.raises(GpusimError, match="tensor=5 does not divide the 12 attention heads of gpt2-small-train") as error:
        check_degrees(gpt2, RankLayout(tensor=5))
    assert error.value.hint == "one of 2, 3, 4, 6, 12"


def machine(folder: Path, pattern: str, other: str) -> str:
    """A DGX-1 with a mistake, and where that stands."""
    text = (ROOT / "hardware_profiles" / "machines" / "dgx-1-v100.yaml").read_text("utf-8")
    changed = re.sub(pattern, other, text, count=1, flags=re.M)
    assert changed != text
    (folder / "mine.yaml").write_text(changed)
    line = next(i for i, (a, b) in enumerate(zip(changed.splitlines(), [*text.splitlines(), ""], strict=False), 1) if a != b)
    return f"mine.yaml:{line}:"


BAD_MACHINES = [
    (r"^  nic\{0\.\.3\}: .*$", "  nic{0..3}: {kind: nic}\n  alone: {kind: nic}", "no wire leads from 'socket0' to 'alone'", 1),
    (r"socket0 - socket1\]", "socket0 - socket0]", "'socket0 - socket0' wires 'socket0' to itself", 0),
    (r"gpu, profile: v100-sxm2-16gb\}", "gpu}", "'gpu{0..7}' is a gpu without a profile", 0),
    (r"gpu, profile: v100-sxm2-16gb\}", "gpu, profile: v100-sxm2-17gb}", "there is no profile 'v100-sxm2-17gb'", 0),
]


@pytest.mark.parametrize(("pattern", "other", "said", "below"), BAD_MACHINES)
def test_a_machine_that_cannot_be_is_told_at_its_place(
    pattern: str, other: str, said: str, below: int, tmp_path: Path
) -> None:
    where = machine(tmp_path, pattern, other)
    number = int(where.split(":")[1]) + below
    (tmp_path / "e.yaml").write_text("question: How?\ntrace: gpt2-small-train\nprofile: mine.yaml\nparallel: data=2\n")
    for words in (["validate", tmp_path / "mine.yaml"], ["run", tmp_path / "e.yaml", "-o", tmp_path / "out"]):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == 2 and said in done.stderr and f"mine.yaml:{number}:" in done.stderr, done.stderr
    assert "e.yaml:3:10: profile: " in done.stderr and not (tmp_path / "out").exists()


@pytest.mark.parametrize(
    ("exchange", "said"),
    [
        ("all_reduce 0,1 8", "of rank 2 calls group 0,1, of which it is no rank"),
        ("all_reduce 0,1,2,3,4 8", "rank 0 names rank 4, and there are 4"),
        ("send 1 8", "for rank 1, which never comes there"),
    ],
)
def test_a_recording_whose_groups_cannot_meet_is_told_before_anything_runs(exchange: str, said: str, tmp_path: Path) -> None:
    """Its last operator but one exchanges something in every rank."""
    trace = load_trace(find("trace", "gpt2-small-train"))
    activity, which = trace.activity.copy(), np.full(trace.ops, -1)
    activity[-2], which[-2] = COLLECTIVE, 0
    save_trace(replace(trace, activity=activity, exchange=which, exchanges=(exchange,)), tmp_path / "mine.npz")
    (tmp_path / "e.yaml").write_text("question: How?\ntrace: mine.npz\nprofile: hgx-h100\nparallel: data=4\nbounds: false\n")
    done = CliRunner().invoke(app, ["run", str(tmp_path / "e.yaml"), "-o", str(tmp_path / "out")])
    assert done.exit_code == 2 and "e.yaml:4:11: " in done.stderr and said in done.stderr, done.stderr
    assert not (tmp_path / "out").exists()
