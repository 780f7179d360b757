"""Slices that are held out: nothing of them is seen, and all rows are scored once for each that hides them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from gpusim.calibrate.serving import slices, steps
from gpusim.calibrate.serving.slices import hiding, in_range
from gpusim.machine.serving.tables import MeasuredOperators, ServingTables


class Known(ServingTables):
    """Products of 4 x 3 x 3 shapes whose time is that of 10 ns a row, and attention of four head counts."""

    def gemm(self, dtype: str) -> MeasuredOperators | None:
        if dtype != "bf16":
            return None
        m, n, k = (a.reshape(-1) for a in np.meshgrid([1.0, 32.0, 128.0, 8192.0], [256.0, 512, 1024], [256.0, 512, 1024]))
        return MeasuredOperators({"m": m, "n": n, "k": k}, 1e4 + 10 * m, "known/gemm")

    def decode(self, cache: str) -> MeasuredOperators | None:
        return self._heads("kv")

    def prefill(self, cache: str) -> MeasuredOperators | None:
        return self._heads("q")

    def versions(self, kind: str, name: str) -> list[str]:
        return ["1.0"]

    def _heads(self, length: str) -> MeasuredOperators:
        b, s, heads = (a.reshape(-1) for a in np.meshgrid([1.0, 8.0, 64.0], [64.0, 1024.0], [2.0, 4.0, 8.0, 16.0]))
        full = np.ones_like(b)
        dims = {"b": b, length: s, "heads": heads, "kv_heads": full, "dim": 128 * full}
        return MeasuredOperators(dims, 1e4 + b * s * heads / 10, "known/attention")


TABLES = Known(Path("nowhere"), "h100-sxm-80gb", "vllm")


def test_hidden_rows_are_not_seen() -> None:
    model = hiding(TABLES, {"gemm": in_range("m", 17, 64)}, briefly=True)
    seen = model.tables.gemm("bf16")
    assert sorted(set(seen.dims["m"])) == [1, 128, 8192]
    assert len(model.tables.decode("bf16").ns) == 24


def test_every_slice_in_turn() -> None:
    """Heads 4 and 8 of both kinds, 6 rows each; ranges of rows and batches that have any; one inner n and one inner k."""
    found = list(slices.within(TABLES))
    count = {rule: [len(one.log) for one in found if one.rule == rule] for rule in ("heads", "batch", "matrix")}
    assert count["heads"] == [6, 6, 6, 6]
    assert count["matrix"] == [12, 12]
    assert count["batch"] == [8, 8, 8, 9, 9]  # decode at 8 and 64, prompts at 8; products at 32 and 128 rows
    assert all(np.isfinite(one.log).all() and np.abs(one.log).max() > 0 for one in found)


def test_a_smooth_table_is_found_again() -> None:
    """Times that grow smoothly are interpolated to a few per cent where a slice was."""
    heads = np.concatenate([one.log for one in slices.within(TABLES) if one.rule == "heads"])
    assert np.median(np.abs(np.expm1(heads))) < 0.05


def test_a_machine_without_its_own_table() -> None:
    """An H100 of which only its kin's table is known: the same rows, of another machine."""
    found = {(one.rule, one.kind): one for one in slices.by_machine(TABLES)}
    assert set(found) == {("GPU, from its kin", kind) for kind in ("gemm", "decode", "prefill")}
    assert len(found["GPU, from its kin", "gemm"].log) == 36


@pytest.mark.slow
def test_steps_that_need_the_slice() -> None:
    """Three models in bf16, four ranges each; of Llama 70B on eight GPUs the 8 heads on one are in the table; one version."""
    found = list(steps.steps_within(TABLES))
    assert [len([one for one in found if one.rule == rule]) for rule in ("heads", "batch")] == [1, 12]
    heads = next(one for one in found if one.rule == "heads")
    assert 0 < len(heads.log) <= len(steps.compositions()) and np.isfinite(heads.log).all()
    assert not list(steps.steps_of_the_version_before(TABLES))
