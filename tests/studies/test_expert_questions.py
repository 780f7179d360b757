"""Models whose experts do not fit the GPU, in words: bytes of known models, what does not fit, shipped questions.

`python tests/studies/test_expert_questions.py [NAME ...]` makes the golden files anew.
"""

from __future__ import annotations

import hashlib
import json
import sys
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from command_line import gpusim

import gpusim as library
from gpusim.api.experts import expert_question, experts
from gpusim.base.errors import ConfigError, GpusimError
from gpusim.base.yaml import find
from gpusim.machine.serving.experts import LayerStack
from gpusim.studies.experts import published, stated
from gpusim.studies.experts.questions import read
from gpusim.studies.experts.setup import ExpertSpec, model_of, prepare, systems

GOLDEN = Path(__file__).parents[1] / "golden" / "experts"
NAMES = find.names("expert question")
SHORT = "drawn(sequences=2, prompt=8, output=8)"


@cache
def rows(name: str) -> list[dict[str, Any]]:
    return [point.row() for point in expert_question(name)[1]]


@pytest.mark.slow
@pytest.mark.golden
@pytest.mark.parametrize("name", NAMES)
def test_golden_numbers(name: str) -> None:
    expected = json.loads((GOLDEN / f"{name}.json").read_text())
    assert [list(row) for row in rows(name)] == [list(row) for row in expected]
    for found, wanted in zip(rows(name), expected, strict=True):
        assert {k: v for k, v in found.items() if isinstance(v, str)} == {k: v for k, v in wanted.items() if isinstance(v, str)}
        numbers = [k for k, v in wanted.items() if not isinstance(v, str)]
        assert [found[k] for k in numbers] == pytest.approx([wanted[k] for k in numbers], rel=1e-3, nan_ok=True)


@pytest.mark.slow
def test_fewer_experts_on_the_gpu_are_slower_and_foresight_is_fastest() -> None:
    by: dict[Any, list[float]] = {}
    for row in rows("expert_cache"):
        by.setdefault((row["routing"], row["evict"]), []).append(row["token [ms]"])
        assert row["cache"] != "100 %" or (row["hit"], row["link [GB]"]) == (1, 0)
    assert len(by) == 4 and all(times == sorted(times) for times in by.values())
    for (routing, evict), times in by.items():
        if evict == "lru":
            assert all(foreseen <= time for foreseen, time in zip(by[routing, "belady"], times, strict=True))


@pytest.mark.slow
def test_the_faster_the_link_the_less_the_cpu_is_worth() -> None:
    by = {(row["machine"], row["like"], row["cpu"]): row["token [ms]"] for row in rows("expert_link")}
    gain = [by[machine, "fiddler", ""] / by[machine, "fiddler", "2 TFLOP/s"]
            for machine in ("a100-pcie-40gb", "h100-pcie-80gb", "gh200-96gb")]  # fmt: skip
    assert gain == sorted(gain, reverse=True) and gain[0] > 5 and gain[2] < 1.3


@pytest.mark.parametrize(
    ("name", "billions", "expert_mb"),
    [("mixtral-8x7b", 46.7, 352.3), ("nllb-moe-54b", 54.5, 67.1), ("switch-large-128", 26.3, 16.8)],
)
def test_models_have_the_weights_that_their_authors_count(name: str, billions: float, expert_mb: float) -> None:
    model = model_of(name)
    numbers = model.plain_bytes / 2 + model.sparse * model.experts * model.expert_numbers
    assert numbers / 1e9 == pytest.approx(billions, rel=2e-3)
    assert model.expert_bytes / 1e6 == pytest.approx(expert_mb, rel=2e-3)


def test_streaming_takes_what_the_link_takes() -> None:
    """Every expert of every decoder layer and all else over PCIe: no faster than the bytes, and within a tenth of that."""
    routing = "drawn(skew=0, sequences=32, prompt=8, output=8)"
    found = experts("mixtral-8x7b", "rtx-a5000", like="deepspeed", batch=32, routing=routing)
    model, way = found.setup.times.model, found.setup.way
    layer = model.experts * model.expert_bytes + model.turn_bytes(LayerStack(32))
    least = (model.sparse * layer + model.head_bytes) / way.rate
    each = found.run.pass_ns[found.run.decode]
    assert (each > 0.98 * least).all() and (each < 1.1 * least).all()
    assert way.rate == pytest.approx(25.7)


def test_a_cache_that_holds_all_waits_for_nothing() -> None:
    found = experts("mixtral-8x7b", "h200-sxm", routing=SHORT)
    numbers = found.metrics()
    assert (numbers["hit_share"], numbers["link_bytes"], numbers["slots"], numbers["tokens"]) == (1.0, 0, 256, 18)
    assert found.limit() == "the GPU's own work: 100% of the time"
    assert numbers["memory_bytes"] == sum(found.setup.sizes.values()) < 0.9 * found.setup.times.machine.memory.capacity.value


def test_encoder_and_decoder_use_experts_of_their_own() -> None:
    setup = prepare(ExpertSpec(model="nllb-moe-54b", machine="rtx-a5000", routing=SHORT))
    assert [stack.sparse for stack in setup.times.model.stacks] == [6, 6]
    assert setup.passes.part.tolist() == ([0] + [1] * 8) * 2 and setup.passes.made.tolist() == ([0] + [1] * 8) * 2
    first = setup.passes.layer[setup.passes.first[:-1]]
    assert first.tolist() == ([0] + [6] * 8) * 2
    assert np.isfinite(setup.run().metrics()["token_ns"])


@pytest.mark.slow
@pytest.mark.oracle
def test_what_streams_is_as_published_where_the_bytes_are_known() -> None:
    """Mixtral in 16 bits over PCIe 4, and how a batch changes the bytes of a step; the others are shown, not scored."""
    row = next(row for row in published.rows() if (row["like"], row["model"]) == ("deepspeed", "mixtral-8x7b"))
    assert row["said"]["pinned"] == pytest.approx(row["step_s"], rel=0.15)
    ratio = {name: (known, said) for name, known, said in published.ratios()}
    for name in ("accelerate, mixtral-8x7b", "deepspeed, nllb-moe-54b", "deepspeed, switch-large-128"):
        assert ratio[name][1] == pytest.approx(ratio[name][0], rel=0.15)
    assert published.table().count("| mixtral-8x7b |") == 6


@pytest.mark.hand_worked
def test_an_expert_that_leaves_goes_back_behind_each_copy() -> None:
    """352 MB at 25.7 GB/s there and 25.8 GB/s back, one after the other: that much more for each copy, and nothing else."""
    words = {"like": "mixtral-offloading", "cache": "1 a layer", "routing": SHORT}
    swapped, dropped = (experts("mixtral-8x7b", "rtx-a5000", swaps=swaps, **words) for swaps in (True, False))
    back = swapped.setup.back
    assert back is not None and back.rate == pytest.approx(25.8) and dropped.setup.back is None
    each = back.latency + round(swapped.setup.times.model.expert_bytes / back.rate)
    assert swapped.run.ns - dropped.run.ns == swapped.run.count["copies"] * each
    assert swapped.metrics()["link_bytes"] == 2 * dropped.metrics()["link_bytes"]


@pytest.mark.slow
@pytest.mark.oracle
def test_published_answers_of_stated_configurations() -> None:
    """One row in ten: with the link as it is in the catalogue, and inferred from one row of each machine."""
    some = [row for row in stated.rows() if row.batch == 1 and row.output <= 256][::10]
    assert len(some) >= 20
    plain, told = (np.abs(stated.errors(some, inferred=inferred)) for inferred in (False, True))
    assert np.median(plain) < 0.3 and np.median(told) < 0.1
    by = {(row.machine, row.system): error for row, error in zip(some, told, strict=True)}
    assert by["l4", "mixtral-offloading"] < 0.05, "its link is inferred from DeepSpeed"


def test_rows_are_split_by_their_hash() -> None:
    rows = stated.rows()
    assert len(rows) == 477 and sum(row.split == "held out" for row in rows) == 224
    for row in rows[::25]:
        key = "/".join(map(str, (row.machine, row.system, row.texts, row.prompt, row.output, row.batch, row.seen)))
        assert (int(hashlib.sha256(key.encode()).hexdigest(), 16) % 2 == 0) == (row.split == "visible")


@pytest.mark.parametrize("name", sorted(systems()))
def test_systems_run(name: str) -> None:
    more = {"bits": 4} if name == "mixtral-offloading" else {"cpu": "2 TFLOP/s"} if name == "fiddler" else {}
    found = experts("mixtral-8x7b", "rtx-a5000", like=name, routing=SHORT, **more)
    assert found.metrics()["tokens"] == 18 and systems()[name]["source"]
    assert found.setup.cache.apart == (name == "mixtral-offloading")


def test_from_python_with_a_policy_of_ones_own(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    body = "def newest(last_use):\n    'The last used leaves.'\n    return -last_use\n"
    file.write_text(f"import gpusim\n\n@gpusim.policy.evict\n{body}")
    run = gpusim("experts", "--model", "mixtral-8x7b", "--machine", "rtx-a5000", "--evict", "newest,lru", "--use", str(file),
                 "--routing", SHORT, "--json")  # fmt: skip
    found = json.loads(run.stdout)
    assert [one["experts"]["evict"] for one in found] == ["newest", "lru"] and found[0]["routing"] == "drawn"

    @library.policy.evict
    def newest(last_use):  # type: ignore[no-untyped-def]
        """The last used leaves."""
        return -last_use

    again = library.experts("mixtral-8x7b", "rtx-a5000", evict=newest, routing=SHORT)
    assert again.metrics()["hit_share"] == found[0]["metrics"]["hit_share"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"model": "llama-8b"}, "'llama-8b' has no experts"),
        ({"model": "mixtal"}, "the zoo has no model 'mixtal'"),
        ({"cache": "4 a layer"}, "128 experts of 336 MiB do not fit rtx-a5000 beside the rest"),
        ({"cache": "many"}, "'many'"),
        ({"cache": "900"}, "cache: 900 is more than mixtral-8x7b has: 8 experts in each of its 32 layers"),
        ({"cache": "9 a layer"}, "9 a layer is more"),
        ({"cache": "101 %"}, "101 % is more"),
        ({"guess": "gate"}, "has no guesses of gates"),
        ({"guess": "gate(hit=2)"}, "cannot have hit=2"),
        ({"guess": "gates"}, "there is no guess 'gates'"),
        ({"evict": "cost_aware"}, "needs the timed engine"),
        ({"cpu": "profile"}, "does not say how fast the CPU's cores are"),
        ({"cpu": "fast"}, "'fast'"),
        ({"bits": 5}, "experts of 5 bits are not modelled"),
        ({"like": "fidler"}, "there is no system 'fidler'"),
        ({"start": "warm"}, "there is no start 'warm'"),
        ({"batch": 0}, "a batch of 0"),
        ({"cache": "4 each"}, "'4 each' is no room for experts (fit, 64, 4 a layer"),
        ({"caches": "fit"}, "a cache of experts has no 'caches'"),
        ({"batch": 64, "routing": "drawn(sequences=64, prompt=8000)"}, "leaves no room for experts on rtx-a5000"),
        ({"routing": "nowhere.txt"}, "there is no file of a routing 'nowhere.txt'"),
    ],
)  # fmt: skip
def test_what_cannot_be_is_said(words: dict[str, Any], said: str) -> None:
    given = {"model": "mixtral-8x7b", "machine": "rtx-a5000", "routing": SHORT} | words
    with pytest.raises(GpusimError) as error:
        experts(**given)
    assert said in str(error.value)


def test_a_question_is_checked(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text("question: What?\nexperts: {model: mixtral-8x7b, machine: rtx-a5000, cache: [8, 4 a layer], evicts: lru}\n")
    with pytest.raises(ConfigError, match=r"mine.yaml:2"):
        read(file)
    words = f"model: mixtral-8x7b, machine: rtx-a5000, cache: [8, 4 a layer], routing: '{SHORT}'"
    file.write_text(f"question: What?\nexperts: {{{words}}}\n")
    assert "a valid expert question: 2 runs" in gpusim("validate", str(file)).stdout
    run = gpusim("run", str(file), "-o", str(tmp_path / "out"))
    assert "do not fit" in run.stdout
    written = sorted(path.name for path in (tmp_path / "out").iterdir())
    assert written == ["experts.pdf", "experts.png", "experts.svg", "summary.csv"]


if __name__ == "__main__":
    for name in sys.argv[1:] or NAMES:
        GOLDEN.mkdir(exist_ok=True)
        (GOLDEN / f"{name}.json").write_text(json.dumps(rows(name), indent=1) + "\n")
