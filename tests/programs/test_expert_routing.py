"""Routing of experts: drawn by its skew, kept in files and read back, mistakes with file and line, a model's gates recorded."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from command_line import gpusim

from gpusim.base.errors import GpusimError, TraceError
from gpusim.programs.serving.routing import drawn, read, routing_of, write

GOOD = "gpusim routing 1\nexperts=4 layers=2 chosen=2 source=by hand\n0 p 0,1 2,3 > 2,1\n0 d 1,0 3,2 > 3,2\n1 d 2,1 0,1 > 0,1\n"


def test_a_skew_is_zipfs() -> None:
    """One expert of 8 for a token: the k-th most popular has the share of 1 / k**skew."""
    found = drawn("drawn(skew=1, sequences=400, prompt=0, output=100)", (1,), 8, 1).choices[0].ravel()
    share = np.sort(np.bincount(found, minlength=8))[::-1] / len(found)
    wanted = (1 / np.arange(1, 9)) / (1 / np.arange(1, 9)).sum()
    assert share == pytest.approx(wanted, abs=0.01)
    even = drawn("drawn(skew=0, sequences=400, prompt=0, output=100)", (1,), 8, 1).choices[0].ravel()
    assert np.bincount(even) / len(even) == pytest.approx(np.full(8, 1 / 8), abs=0.01)


def test_popularity_is_that_of_the_model() -> None:
    """Choices as they were counted in Mixtral: the most popular expert of a layer has 15 % of them, the least 10 %."""
    made = drawn("drawn(popularity=mixtral-8x7b, sequences=40, prompt=0, output=500)", (32,), 8, 2)
    first = np.stack([np.bincount(made.choices[0][:, layer].ravel(), minlength=8) for layer in range(32)])
    share = first / first.sum(axis=1, keepdims=True)
    assert share.max(axis=1).mean() == pytest.approx(0.149, abs=0.006)
    assert share.min(axis=1).mean() == pytest.approx(0.1, abs=0.006)
    assert share[11].argmin() == 3 and share[11].min() < 0.035, "which is hardly chosen at all"


def test_a_token_repeats_its_neighbour_and_follows_the_layer_before() -> None:
    same = drawn("drawn(skew=0, sticky=0.6, sequences=1, prompt=0, output=20000)", (1,), 8, 1).choices[0][:, 0, 0]
    assert (same[1:] == same[:-1]).mean() == pytest.approx(0.6 + 0.4 / 8, abs=0.02)
    both = drawn("drawn(skew=0, follow=1, sequences=1, prompt=0, output=5000)", (2,), 8, 1).choices[0][:, :, 0]
    assert len(np.unique(both, axis=0)) == 8  # a permutation of the experts
    assert drawn("drawn(sticky=1, sequences=3)", (2,), 8, 2).choices[0].reshape(3, 128, -1).std(axis=1).max() == 0


def test_a_draw_is_its_seeds_and_experts_of_a_token_differ() -> None:
    one, again, other = (drawn(f"drawn(seed={seed})", (3, 4), 16, 4) for seed in (1, 1, 2))
    for part in range(2):
        assert np.array_equal(one.choices[part], again.choices[part])
        assert not np.array_equal(one.choices[part], other.choices[part])
        assert (np.diff(np.sort(one.choices[part], axis=2), axis=2) > 0).all()
    assert [c.shape for c in one.choices] == [(8 * 64, 3, 4), (8 * 64, 4, 4)] and not one.recorded
    assert one.decoded[1].all() and not one.decoded[0].any()


def test_a_file_is_read_back_as_it_was_written(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(GOOD)
    found = read(tmp_path / "a.txt")
    assert found.recorded and found.source == "by hand" and found.sequences == 2
    assert found.choices[0].tolist() == [[[0, 1], [2, 3]], [[1, 0], [3, 2]], [[2, 1], [0, 1]]]
    assert found.guesses is not None and found.guesses.tolist() == [[[2, 1]], [[3, 2]], [[0, 1]]]
    assert found.decoded[0].tolist() == [False, True, True]
    write(found, tmp_path / "b.txt.gz")
    write(read(tmp_path / "b.txt.gz"), tmp_path / "c.txt")
    assert (tmp_path / "c.txt").read_text() == GOOD


@pytest.mark.parametrize(
    ("change", "line", "said"),
    [
        (("gpusim routing 1", "routing"), 1, "does not begin with the head"),
        (("layers=2 ", ""), 2, "how many layers"),
        (("chosen=2", "chosen=5"), 2, "of 4 experts no 5"),
        (("0 p 0,1 2,3", "0 p 0,1"), 3, "choices of 2 layers"),
        (("0 d 1,0", "0 x 1,0"), 4, "its sequence, p or d"),
        (("0 d 1,0", "0 d 1,4"), 4, "names no experts from 0 to 3"),
        (("0 d 1,0", "0 d 1,1"), 4, "2 different experts"),
        (("0 d 1,0", "0 d 1"), 4, "2 different experts"),
        (("1 d 2,1", "0 p 2,1"), 5, "behind one that was decoded"),
        (("1 d 2,1", "3 d 2,1"), 5, "sequence 3 stands behind 0"),
        (("0 p 0,1", "1 p 0,1"), 3, "sequences begin with 0"),
        (("3,2 > 3,2", "3,2"), 4, ""),
        (("> 3,2", "> 3,2 1,0"), 4, "guesses of 2 layers"),
        (("> 3,2", "> 3,2,1"), 4, "equally many"),
    ],
)  # fmt: skip
def test_mistakes_have_a_place(tmp_path: Path, change: tuple[str, str], line: int, said: str) -> None:
    path = tmp_path / "bad.txt"
    path.write_text(GOOD.replace(*change, 1))
    with pytest.raises(TraceError) as error:
        read(path)
    assert f"{path}:{line}" in str(error.value) and said in str(error.value)


def test_what_is_no_routing_is_said(tmp_path: Path) -> None:
    (tmp_path / "a.txt").write_text(GOOD)
    (tmp_path / "empty.txt").write_text("\n".join(GOOD.splitlines()[:2]))
    (tmp_path / "cut.txt.gz").write_bytes(b"\x1f\x8b\x08\x00")
    for word, layers, said in (
        (str(tmp_path / "a.txt"), (3,), "it is of 2 layers with 4 experts, 2 chosen; the model has 3, 4 and 2"),
        (str(tmp_path / "a.txt"), (2, 2), "the model has an encoder"),
        (str(tmp_path / "empty.txt"), (2,), "it has no token"),
        (str(tmp_path / "cut.txt.gz"), (2,), "cannot be read"),
        (str(tmp_path / "none.txt"), (2,), "there is no file of a routing"),
        ("drawn(skw=1)", (2,), "a drawn routing has no 'skw'"),
        ("drawn(sticky=2)", (2,), "cannot have sticky=2"),
        ("drawn(skew=much)", (2,), "'much' is no number for skew"),
        ("drawn(output=0)", (2,), "cannot have output=0"),
        ("drawn(popularity=mixtral)", (2,), "no popularity of experts was counted for 'mixtral'"),
        ("drawn(popularity=mixtral-8x7b)", (2,), "is of 32 layers with 8 experts; the model has 2 and 4"),
        ("drawn(popularity=mixtral-8x7b, skew=1)", (2,), "has no skew and no topics of its own"),
        ("drawn(sequences=100000, output=10000)", (2,), "draws more than"),
    ):  # fmt: skip
        with pytest.raises(GpusimError) as error:
            routing_of(word, layers, 4, 2)
        assert said in str(error.value)


def test_a_models_gates_are_recorded() -> None:
    torch = pytest.importorskip("torch")
    from gpusim.programs.record.routing import record_routing

    class Model(torch.nn.Module):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = torch.nn.Embedding(10, 6)
            self.gates = torch.nn.ModuleList(torch.nn.Linear(6, 4, bias=False) for _ in range(3))

        def forward(self, ids: object) -> object:
            x = self.tokens(ids)
            for gate in self.gates:
                x = torch.tanh(x + gate(x).sum(-1, keepdim=True))
            return x

    torch.manual_seed(0)
    model, text = Model(), torch.arange(10)
    found = record_routing(model, list(model.gates), [text, text[:4]], chosen=2, prompt=3, source="a test")
    assert found.choices[0].shape == (14, 3, 2) and found.decoded[0].sum() == 7 + 1 and found.sequences == 2
    x = model.tokens(text)
    best = [sorted(row) for row in model.gates[0](x).topk(2).indices.tolist()]
    assert [sorted(row) for row in found.choices[0][:10, 0].tolist()] == best
    assert found.guesses is not None
    best = [sorted(row) for row in model.gates[1](x).topk(2).indices.tolist()]  # the second gate on what the first one reads
    assert [sorted(row) for row in found.guesses[:10, 0].tolist()] == best
    with pytest.raises(GpusimError, match="not each of the 2 once"):
        record_routing(model, [model.gates[1], model.gates[0]], [text], chosen=2, prompt=3, source="a test")


SCRIPT = """
import torch

class Layer(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gate = torch.nn.Linear(6, 4, bias=False)

    def forward(self, x):
        return torch.tanh(x + self.gate(x).sum(-1, keepdim=True))

torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Embedding(10, 6), Layer(), Layer())
texts = [torch.arange(10), torch.arange(8)]
prompt = 5
"""


def test_the_command_records_a_script(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    (tmp_path / "mine.py").write_text(SCRIPT)
    out = tmp_path / "mine.txt.gz"
    told = gpusim("record", tmp_path / "mine.py", "--routing", "-o", out).stdout
    assert "18 tokens of 2 texts, 2 layers with 4 experts, 2 of them for each token" in told
    found = read(out)
    assert found.recorded and found.source == "mine.py" and found.decoded[0].sum() == 5 + 3 and found.guesses is not None
    for change, said in (
        (("texts =", "text ="), "the script has no 'texts'"), (("self.gate", "self.door"), "is called gate or router"),
        (("prompt = 5", "chosen = 5"), "of 4 experts no 5 can be chosen"), (("model =", "model = 3 #"), "'model' is int"),
        (("import torch", "import torhc"), "ModuleNotFoundError"),
    ):  # fmt: skip
        (tmp_path / "bad.py").write_text(SCRIPT.replace(*change))
        assert said in gpusim("record", tmp_path / "bad.py", "--routing", "-o", out, code=2).stderr
