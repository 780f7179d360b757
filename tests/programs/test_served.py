"""Models of the zoo as they are served."""

from __future__ import annotations

import pytest

from gpusim.base.errors import GpusimError
from gpusim.programs.zoo.models import ENTRIES
from gpusim.programs.zoo.served import served

pytestmark = pytest.mark.fast


@pytest.mark.parametrize("name", ["llama-8b", "llama-70b", "qwen3-32b", "mixtral-8x7b", "qwen3-235b-a22b"])
def test_weights_are_those_of_the_zoo(name: str) -> None:
    """All but norms, which are less than a thousandth."""
    entry = next(e for e in ENTRIES if e.name == name)
    assert served(name).weight_bytes(1) == pytest.approx(2 * entry.parameters, rel=1e-3)
    assert served(name, cache="fp8").token_bytes(1) * 2 == served(name).token_bytes(1)


def test_opt_is_not_gated_and_has_its_embedding_twice() -> None:
    """Engines hold the tied embedding as a table and as the head; positions and norms are left out."""
    model = served("opt-30b")
    assert (model.hidden, model.kv_heads, model.head_size, model.gated, model.context) == (4 * 7168, 56, 128, False, 2048)
    assert model.weight_bytes(1) == 2 * (48 * 12 * 7168**2 + 2 * 50272 * 7168)
    assert model.token_bytes(1) == 2 * 48 * 7168 * 2


def test_keys_and_values_of_a_token() -> None:
    """Llama 3 8B: 32 layers, 8 heads of 128, keys and values of 16 bits: 128 KiB; on 4 GPUs a quarter, on 16 two heads each."""
    model = served("llama-8b")
    assert [model.token_bytes(ways) for ways in (1, 4, 16)] == [131072, 32768, 16384]
    assert model.heads_on(16) == (2, 1)


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("gpt-oss-20b", "attention within a window, and sinks"), ("deepseek-v3", "latent attention"),
        ("llama4-maverick", "attention within chunks"), ("gemma3-4b", "the layers of gemma"),
        ("resnet50", "the layers of resnet"),
    ],
)  # fmt: skip
def test_what_is_not_modelled_is_refused(name: str, said: str) -> None:
    with pytest.raises(GpusimError, match=said) as error:
        served(name)
    assert "llama-8b" in (error.value.hint or "")


def test_unknown() -> None:
    with pytest.raises(GpusimError, match="the zoo has no model 'lama-8b'"):
        served("lama-8b")
