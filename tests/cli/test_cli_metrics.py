"""Does `gpusim metrics NAME` say what is true of every run?"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from gpusim.cli.app import app
from gpusim.results.explained import FORMULAS, PAGES, PARTS, explain
from gpusim.results.folder import load_folder
from gpusim.results.metrics import METRICS
from gpusim.results.result import Result

ROOT = Path(__file__).parents[2]
TENSORS = """
question: What adds up to what?
trace: gpt-medium-infer
profile: l4
memory: [120 %, 70 %]
tiers: host > nvme
host_memory: 20 %
bounds: search
policies: {place: [pytorch, best_fit], evict: lru, prefetch: next_k}
"""
PAGED = """
question: What adds up to what, under unified memory?
trace: triad
profile: a100-pcie-40gb
memory: [120 %, 70 %]
unified: [driver, "driver(prefetch=none)"]
"""


def gpusim(*said: object, code: int = 0) -> Any:
    done = CliRunner().invoke(app, [str(word) for word in said])
    assert done.exit_code == code, f"{done.stdout}\n{done.stderr}\n{done.exception!r}"
    return done


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> list[Result]:
    found: list[Result] = []
    for name, text in (("tensors", TENSORS), ("paged", PAGED)):
        folder = tmp_path_factory.mktemp("metrics")
        (folder / f"{name}.yaml").write_text(text)
        gpusim("run", folder / f"{name}.yaml", "-o", folder / "out", "--no-figures")
        found += load_folder(folder / "out")
    return [result for result in found if result.finished]


def numbers(result: Result) -> dict[str, float]:
    return {**result.bounds, **result.metrics}


@pytest.mark.slow
@pytest.mark.parametrize("name", FORMULAS)
def test_a_formula_gives_the_number(name: str, results: list[Result]) -> None:
    seen = [n for n in map(numbers, results) if name in n and not (name == "faults_per_batch" and not n["fault_batches"])]
    assert seen
    for found in seen:
        assert found[name] == pytest.approx(eval(FORMULAS[name], {}, found), rel=1e-12, abs=1e-12)


@pytest.mark.slow
@pytest.mark.parametrize("name", PARTS)
def test_parts_add_up_exactly(name: str, results: list[Result]) -> None:
    for parts in PARTS[name].values():
        seen = [n for n in map(numbers, results) if name in n and any(part in n for part in parts)]
        assert seen and any(n[name] for n in seen)
        assert all(n[name] == sum(n.get(part, 0) for part in parts) for n in seen)


def test_what_is_named_is_declared() -> None:
    names = {name for parts in PARTS.values() for part in parts.values() for name in part}
    assert {*FORMULAS, *PARTS, *names} <= set(METRICS) and {m.group for m in METRICS.values()} == set(PAGES)
    for page in PAGES.values():
        assert (ROOT / page).is_file()


def test_a_number_is_explained() -> None:
    said = gpusim("metrics", "stall_swap_in_ns").stdout
    assert said.startswith(f"stall_swap_in_ns: {METRICS['stall_swap_in_ns'].meaning}\n")
    for words in ("nanoseconds", "lower is better", "part of   stall_ns", "design.md"):
        assert words in said
    said = gpusim("metrics", "slowdown").stdout
    assert "computed  makespan_ns / bound_no_limit_ns" in said and "a ratio or share" in said and "answers: times" in said


@pytest.mark.slow
def test_every_number_has_an_explanation() -> None:
    for name in METRICS:
        found = json.loads(gpusim("metrics", name, "--json").stdout)
        assert found["name"] == name and found["meaning"] and found["page"] == explain(name).page


def test_an_unknown_number_is_answered_with_the_nearest() -> None:
    assert "there is no metric 'slowdwn' (did you mean 'slowdown'?)" in gpusim("metrics", "slowdwn", code=2).stderr


def test_a_sum_is_told_with_its_parts() -> None:
    said = gpusim("metrics", "stall_ns").stdout
    assert "sum of  " in said and " + ".join(PARTS["stall_ns"][""]) in said
    assert "sum of (under unified memory)  demanded_bytes + prefetched_bytes" in gpusim("metrics", "h2d_bytes").stdout
