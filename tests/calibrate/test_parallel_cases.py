"""The published steps on several GPUs: whole, in strict keys, with sources; and the half that is held out."""

from __future__ import annotations

import hashlib
import re
from pathlib import Path

import pytest

from gpusim.base.errors import ConfigError, GpusimError
from gpusim.calibrate.parallel.cases import load, shipped, visible

# Of the names of all that are held out, in their order: drawn before the first line of their simulation.
SPLIT = "a1c51cbd01fb8a04"

ONE = """
sources: {paper: "a paper, table 1"}
models: {M: {family: gpt2, config: {layers: 2}}}
cases:
  - {name: one, source: paper, system: S, model: M, machine: hgx-h100, layout: data=8, batch: 4, microbatches: 2, seq: 16,
     precision: bf16, reduced: fp32, recompute: none, measured: 64, unit: tokens/s/GPU}
"""


def written(tmp_path: Path, old: str = "", new: str = "") -> Path:
    file = tmp_path / "cases.yaml"
    file.write_text(ONE.replace(old, new, 1) if old else ONE, "utf-8")
    return file


def test_half_is_held_out_by_name() -> None:
    held = sorted(case.name for case in shipped().cases if case.held_out)
    assert hashlib.sha256("\n".join(held).encode()).hexdigest()[:16] == SPLIT
    assert len(shipped().cases) == 121 and len(visible()) + len(held) == 121
    assert not {case.name for case in visible()} & set(held)


def test_every_source_and_model_is_used_and_says_where() -> None:
    published = shipped()
    assert {case.source for case in published.cases} == set(published.sources)
    assert {case.model for case in published.cases} == set(published.models)
    assert all(re.search(r"(github\.com|huggingface\.co)/\S+", place) for place in published.sources.values())


def test_what_was_measured_becomes_seconds(tmp_path: Path) -> None:
    one = load(written(tmp_path)).cases[0]
    assert one.samples == 4 * 2 * 8 and one.step_s == 64 * 16 / (64 * 8)
    assert load(written(tmp_path, "tokens/s/GPU", "samples/s")).cases[0].step_s == 1.0
    assert load(written(tmp_path, "tokens/s/GPU", "s/step")).cases[0].step_s == 64.0
    first = next(case for case in shipped().cases if case.name == "atorch-fsdp-llama2-7b-8")
    assert first.step_s == pytest.approx(4.89, abs=0.02), "204.67 TFLOP/s of four forward passes of layers, three of the head"


@pytest.mark.parametrize(("old", "new", "said"), [
    ("source: paper,", "source: papre,", "has the source 'papre'"), ("model: M,", "model: N,", "has the model 'N'"),
    ("layout: data=8", "layout: data=8 microbatches=2", "names microbatches"),
    ("layout: data=8", "layout: dta=8", "'dta' is no degree"),
])  # fmt: skip
def test_what_cannot_be_is_refused(tmp_path: Path, old: str, new: str, said: str) -> None:
    with pytest.raises(GpusimError, match=said):
        load(written(tmp_path, old, new))


@pytest.mark.parametrize(("old", "new"), [
    ("batch: 4", "batch: 0"), ("unit: tokens/s/GPU", "unit: bananas"), ("seq: 16", "sequence: 16"),
])  # fmt: skip
def test_strict_keys(tmp_path: Path, old: str, new: str) -> None:
    with pytest.raises(ConfigError):
        load(written(tmp_path, old, new))
