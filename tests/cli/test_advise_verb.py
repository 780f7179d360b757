"""`gpusim advise` as it is typed: what it takes, what it prints and leaves, and what it refuses."""

from __future__ import annotations

import json
import pickle
from html import escape
from pathlib import Path
from typing import Any

import pytest
from oom_snapshots import GIB, MIB, Expandable
from page_content import told
from typer.testing import CliRunner

import gpusim
from gpusim.base.errors import ResultError
from gpusim.cli.app import app
from gpusim.show.page.write import write_page
from gpusim.studies.advice import report

MACHINE = "rtx-2080-ti"


@pytest.fixture(autouse=True)
def elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def said(*words: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, ["advise", *map(str, words)])
    assert done.exit_code == code, f"{done.exit_code}: {done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


@pytest.mark.slow
def test_the_verb_prints_and_leaves_what_the_call_returns() -> None:
    tries = ["checkpointing", "offload"]
    words = ["gpt2-small-train", "--on", MACHINE, "--try", tries[0], "--try", tries[1]]
    found = gpusim.advise("gpt2-small-train", on=MACHINE, tries=tries)
    plain = json.loads(json.dumps(found.values))
    assert json.loads(said(*words, "--json", "-q").stdout) == plain
    assert json.loads(Path("results/advise-gpt2-small-train/advice.json").read_text()) == plain
    text = said(*words, "-q").stdout
    assert text == f"{found}\n\nresults/advise-gpt2-small-train: advice.json\n"
    # What is kept says the same again, all of it; so does the page.
    assert report.text(report.from_values(plain)) == str(found)
    page = told(write_page(Path("results/advise-gpt2-small-train")).path)["folders"][0]["told"]
    assert page["question"] == "What would help gpt2-small-train?" and page["answer"] in " ".join(text.split())
    helpful, copied = page["advised"]["tables"]
    assert helpful["title"] == report.HELP and helpful["rows"][1][1] == "checkpointing" and copied["title"] == "To copy"
    assert any(note.startswith("Simulated, and no help: offload: ") for note in page["advised"]["notes"])
    assert found._repr_html_() == f"<pre>{escape(str(found))}</pre>"
    assert list(found.frame()["change"]) == ["checkpointing"] and "offload" in [p["change"] for p in plain["helpless"]]


def test_a_page_of_what_is_no_advice_is_refused(tmp_path: Path) -> None:
    (tmp_path / "advice.json").write_text('{"program": "x"}')
    with pytest.raises(ResultError, match="this is no advice that this gpusim reads") as refused:
        write_page(tmp_path)
    assert refused.value.where == str(tmp_path / "advice.json") and "gpusim advise" in refused.value.hint


@pytest.mark.slow
def test_the_text_has_the_answer_the_line_to_copy_and_what_was_not_tried() -> None:
    words = ["--on", MACHINE, "--try", "checkpointing", "--beside", "t4", "--price", "t4=0.35", "-q"]
    text = said("gpt2-small-train", *words).stdout
    assert "It fits rtx-2080-ti (10.5 GiB without the CUDA context) as it is and holds 9.81 GiB" in text
    assert "1  h = torch.utils.checkpoint.checkpoint(block, h, use_reentrant=False) for each block" in text
    assert "As it is on other machines" in text and "$0.18 (" in text
    assert "unified memory: the program fits" in text and "roundup_power2_divisions:8: it holds 328 MiB more" in text


@pytest.mark.slow
def test_several_gpus_are_those_that_were_named() -> None:
    found = json.loads(said("gpt2-small-train", "--on", "2 x a100-sxm4-80gb", "--json", "-q").stdout)
    tried = [p["change"] for p in found["proposals"]] + [p["change"] for p in found["helpless"]]
    assert any("ranks=2" in change for change in tried) and not any("ranks=8" in change for change in tried)


@pytest.mark.slow
def test_a_model_of_the_zoo_is_recorded_and_kept() -> None:
    pytest.importorskip("torch")
    words = ["resnet50", "--batch", "4", "--on", "t4", "--try", "checkpointing", "--json", "-q"]
    found = json.loads(said(*words).stdout)
    assert found["fits"] and found["trace"] == "results/advise-resnet50/resnet50.npz" and Path(found["trace"]).is_file()


@pytest.mark.slow
def test_a_snapshot_needs_no_machine_and_a_failure_is_told() -> None:
    device = Expandable(0)
    device.alloc(4000 * MIB)
    device.oom(GIB, free=64 * MIB)
    settings = {"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True", "expandable_segments": True}
    root = {"segments": [device.segment()], "device_traces": [device.events], "allocator_settings": settings}
    Path("s.pickle").write_bytes(pickle.dumps(root))
    found = json.loads(said("s.pickle", "--json", "-q").stdout)
    assert found["fits"] is None and found["verdict"].startswith("Out of memory on a request of 1 GiB")
    assert found["proposals"] == [] and {one["why"] for one in found["helpless"]} == {"a request fails"}
    assert "no machine is named: --on MACHINE" in [one["why"] for one in found["not_tried"]]
    on_t4 = json.loads(said("s.pickle", "--on", "t4", "--json", "-q").stdout)
    assert on_t4["fits"] is True
    assert "what the program would have held after it is not known" in " ".join(on_t4["remarks"])


@pytest.mark.slow
def test_a_managed_program_gets_hints_that_are_simulated() -> None:
    found = json.loads(said("pingpong", "--on", "a100-pcie-40gb", "--json", "-q").stdout)
    best = found["proposals"][0]
    assert best["tool"] == "faults" and best["step_ns"] < found["now"]["step_ns"]
    word = best["change"].removeprefix("driver(").removesuffix(")")
    again = gpusim.simulate("pingpong", on="a100-pcie-40gb", unified=f"driver({word})", bounds=False)
    assert again.makespan_ns == best["step_ns"]


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["gpt2-small-train"], "advice needs a machine (name one, such as a100-pcie-40gb"),
        (["pingpong"], "advice needs a machine"),
        (["gpt2-smal-train", "--on", "t4"], "there is no program 'gpt2-smal-train' (did you mean"),
        (["nothing.py", "--on", "t4"], "there is no script 'nothing.py'"),
        (["gone.pickle", "--on", "t4"], "there is no program 'gone.pickle'"),
        (["variable_training(hours=1)", "--on", "t4"], "a generated program, without operators (gpusim oom 'varia"),
        (["gpt2-small-train", "--on", "t5"], "there is no profile 't5'"),
        (["gpt2-small-train", "--on", "t4,l4"], "gpusim advise takes one machine, not 2"),
        (["gpt2-small-train", "--on", "2 x dgx-1-v100"], "is a whole machine (write --on '16 x v100-sxm2-16gb'"),
        (["gpt2-small-train", "--on", "t4", "--price", "t4"], "'t4' is no price of a machine (write --price"),
        (["gpt2-small-train", "--on", "t4", "--price", "t4=-1"], "'t4=-1' is no price of a machine"),
        (["gpt2-small-train", "--on", "t4", "--price", "l4=1"], "there is a price for l4, which is not asked about"),
        (["gpt2-small-train", "--on", "t4", "--beside", "l5"], "there is no profile 'l5'"),
        (["gpt2-small-train", "--on", "t4", "--try", "checkpoint"], "there is no transform 'checkpoint'"),
        (["gpt2-small-train", "--on", "t4", "--device", "1"], "--device chooses one GPU of a snapshot"),
        (["gpt2-small-train", "more", "--on", "t4"], "'more' is no option of a model"),
    ],
)
def test_what_cannot_be_answered_is_refused_with_a_sentence(words: list[str], why: str) -> None:
    assert why in said(*words, code=2).stderr
