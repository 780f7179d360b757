"""Machines with some numbers of their own: what is read, what moves along, and what is refused."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from gpusim.base.errors import GpusimError
from gpusim.base.yaml.find import find
from gpusim.cli.app import app
from gpusim.machine import variant
from gpusim.machine.sampling import intervals

A100 = find("profile", "a100-pcie-80gb")


def test_numbers_are_read_by_their_units_and_curves_move_along() -> None:
    plain = variant.load(A100, "a100-pcie-80gb")
    made = variant.load(A100, "a100-pcie-80gb(launch.submit=8 us, link.h2d=12 GB/s, gpu.peak.bf16=100 TFLOP/s, launch.queue=7)")
    assert made.launch.submit.value == 8_000 and made.link.h2d.value == 12e9 and made.gpu.peak["bf16"].value == 100e12
    assert made.launch.queue.value == 7 and made.link.d2h == plain.link.d2h
    slower = 12e9 / plain.link.h2d.value
    for (size, rate), (same, before) in zip(made.link.size_curve, plain.link.size_curve, strict=True):
        assert size == same and rate == pytest.approx(before * slower)
    assert "launch.submit" not in {i.path for i in intervals(made, 0.15)} >= {i.path for i in intervals(plain, 0.0)} - {
        "launch.submit", "link.h2d",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("numbers", "said"),
    [
        ("launch.sumbit=5 us", "has no number 'launch.sumbit' (did you mean 'submit'?)"),
        ("launch.submit=5", "'5' has no unit: a time is wanted"),
        ("launch=5 us", "'launch' is not a number of a profile (such as launch.submit"),
        ("link.h2d=0 GB/s", "a rate of 0 would never come to an end"),
        ("link.h2d=1 GB/s, link.h2d=2 GB/s", "gives 'link.h2d' twice"),
        ("copy_engines.h2d=0", "'0', not a whole number above 0"),
        ("nvme.read=-1 GB/s", "-1"),
    ],
)
def test_what_is_no_number_of_the_machine_is_said_in_one_sentence(numbers: str, said: str) -> None:
    with pytest.raises(GpusimError) as error:
        variant.load(A100, f"a100-pcie-80gb({numbers})")
    assert said in str(error.value)


@pytest.mark.slow
def test_an_experiment_varies_a_number_of_a_machine(tmp_path: Path) -> None:
    slow = "a100-pcie-80gb(launch.submit=200 us)"
    file = tmp_path / "launches.yaml"
    file.write_text(
        f"question: How much do slow launches cost?\ntrace: gpt-medium-infer\nprofile: [a100-pcie-80gb, {slow}]\n"
    )
    done = CliRunner().invoke(app, ["run", str(file), "-o", str(tmp_path / "out"), "--no-figures", "--json"])
    assert done.exit_code == 0, done.output
    runs = json.loads(done.stdout)
    times = {r["profile"]: r["makespan_ns"] for r in runs}
    assert times[slow] > 2 * times["a100-pcie-80gb"]
    file.write_text(file.read_text().replace("submit=", "sumbit="))
    said = CliRunner().invoke(app, ["validate", str(file)])
    assert said.exit_code == 2 and "launches.yaml:3:" in said.output and "'launch.sumbit'" in said.output
