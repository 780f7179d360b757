"""The published offloading cases: whole, in strict keys, with sources; and the third that is held out."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from gpusim.base.errors import ConfigError, GpusimError
from gpusim.calibrate.offload.cases import DATA, load, shipped, visible

# Drawn by the hash of the names, before the first line of their simulation.
HELD_OUT = {
    "flexgen-opt-6.7b-512", "flexgen-opt-175b-512", "flexgen-opt-30b-compressed-512", "flexgen-opt-175b-compressed-512",
    "accelerate-opt-30b-t4", "accelerate-opt-30b-titan-rtx", "zero-inference-opt-30b-v100-20b",
    "zero-inference-opt-30b-v100-nvme", "zero-inference-opt-30b-a6000-kv", "zero-inference-opt-66b-a6000-kv",
    "llamacpp-llama2-7b-3090ti-cache-on-host", "zero-offload-gpt2-10b-v100", "torchao-vit-giant-ao-gradients",
    "torchtune-llama-3b-activations", "pytorch-llama3-8b-pool",
}  # fmt: skip

ONE = """
sources: {paper: "a paper, table 1"}
cases:
  - {name: one, source: paper, seen: table, system: S, version: "1", gpu: T4, host: unstated, link: PCIe, model: M,
     layers: 2, hidden: 8, heads: 2, ffn: 32, task: generate, batch: 4, gpu_batch: 2, precision: fp16, weights: {host: 1},
     activations: gpu, pinned: "yes", prefetch: "no", attention: gpu, measured: 2.5, unit: tokens/s, resolution: 0.01,
     prompt: 8, generate: 2}
"""


def written(tmp_path: Path, old: str = "", new: str = "") -> Path:
    file = tmp_path / "cases.yaml"
    file.write_text(ONE.replace(old, new, 1) if old else ONE, "utf-8")
    return file


def test_a_third_is_held_out_by_name() -> None:
    assert {case.name for case in shipped() if case.held_out} == HELD_OUT
    assert len(shipped()) == 44 and len(visible()) == 29
    assert not {case.name for case in visible()} & HELD_OUT


def test_every_source_is_used_and_says_where() -> None:
    used = {case.source for case in shipped()}
    text = DATA.read_text("utf-8")
    listed = set(re.findall(r"^  ([a-z0-9-]+): +\"", text, re.M))
    assert used == listed
    places = re.findall(r"^  [a-z0-9-]+: +\"(.*)\"$", text, re.M)
    assert all("github.com/" in place or ".com/" in place for place in places)


@pytest.mark.parametrize("case", [c for c in shipped() if re.search(r"\d+(\.\d+)?B$", c.model)], ids=lambda c: c.name)
def test_shapes_have_the_parameters_of_the_models_name(case) -> None:
    named = float(re.search(r"([\d.]+)B$", case.model)[1]) * 1e9
    groups = case.kv_heads or case.heads
    head = 128 if case.model.startswith("Qwen3") else case.hidden // case.heads
    attention = case.hidden * head * (2 * case.heads + 2 * groups)
    gated = case.kv_heads is not None or case.model.startswith("Llama")
    feed_forward = (3 if gated else 2) * case.hidden * case.ffn
    tables = 1 if case.model.startswith(("OPT", "BLOOM", "Llama-3.2")) else 2
    made = case.layers * (attention + feed_forward) + tables * case.vocabulary * case.hidden
    assert made == pytest.approx(named, rel=0.08)  # a name is rounded


def test_a_case_is_read(tmp_path: Path) -> None:
    (case,) = load(written(tmp_path))
    assert (case.name, case.measured, case.phase, case.gpus, case.higher_is_better) == ("one", 2.5, "all", 1, True)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("prefetch:", "prefetched:", "unknown key 'prefetched'"),
        ("hidden: 8, ", "", "key 'hidden' is missing"),
        ("unit: tokens/s", "unit: tok/s", "tok/s"),
        ("measured: 2.5", "measured: -1", "measured"),
    ],
)
def test_mistakes_are_told_at_their_line(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(said)) as caught:
        load(written(tmp_path, old, new))
    assert "cases.yaml:" in str(caught.value)


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ("source: paper", "source: papers", "'papers', which is not in"),
        ("prompt: 8, generate: 2", "seq: 8", "wrong lengths for generate"),
        ("{host: 1}", "{host: 0.5, gpu: 0.4}", "do not add up to 1"),
    ],
)
def test_a_case_that_does_not_hold_together_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        load(written(tmp_path, old, new))


def test_two_cases_of_one_name_are_refused(tmp_path: Path) -> None:
    file = written(tmp_path)
    file.write_text(ONE + ONE.split("cases:\n")[1], "utf-8")
    with pytest.raises(GpusimError, match="two cases are called 'one'"):
        load(file)
