"""Each family of the zoo, small and on real tensors: every parameter learns, and decoding answers what one pass answers."""

from importlib import import_module

import pytest

torch = pytest.importorskip("torch")

SMALL = {
    "llama": {"layers": 2, "width": 32, "hidden": 48, "heads": 4, "groups": 2, "vocabulary": 50, "normed": True},
    "moe": {"layers": 2, "width": 32, "hidden": 48, "heads": 4, "groups": 2, "vocabulary": 50, "experts": 2, "shared": 16},
    "gemma": {"layers": 6, "width": 32, "hidden": 48, "heads": 4, "groups": 1, "window": 4, "size": 8, "vocabulary": 50},
    "deepseek": {
        "layers": 2, "width": 32, "hidden": 48, "expert": 16, "heads": 2, "experts": 2, "chosen": 2, "shared": 1, "dense": 1,
        "query_rank": 16, "vocabulary": 50, "rank": 16, "plain": 8, "turned": 4, "value": 8,
    },
    "gpt_oss": {
        "layers": 2, "experts": 2, "width": 32, "hidden": 32, "heads": 4, "groups": 2, "size": 8, "vocabulary": 50, "chosen": 2,
        "window": 4,
    },
    "t5": {"layers": 2, "width": 32, "hidden": 48, "heads": 4, "size": 8, "vocabulary": 50},
    "whisper": {"layers": 1, "width": 32, "heads": 4, "vocabulary": 50, "mels": 4},
    "unet": {
        "widths": (32, 64), "depths": (0, 1, 1), "heads": (2, 4), "text": 16, "linear": True, "added": True,
    },
    "dit": {"guided": True, "doubles": 1, "singles": 1, "width": 256, "heads": 2},
}  # fmt: skip
SHAPES = {"unet": {"image": 64}, "dit": {"image": 64}}


def small(family: str):
    torch.manual_seed(0)
    return import_module(f"gpusim.programs.zoo.{family}").Model(**SMALL[family])


@pytest.mark.slow
@pytest.mark.parametrize("family", SMALL)
def test_every_parameter_learns(family):
    model = small(family)
    loss = model(**model.inputs(batch=2, **SHAPES.get(family, {"seq": 12})))
    loss.backward()
    assert loss.isfinite()
    assert [name for name, p in model.named_parameters() if p.requires_grad and p.grad is None] == []


@pytest.mark.slow
@pytest.mark.parametrize("family", ["llama", "gemma", "gpt_oss", "deepseek"])
def test_decoding_answers_what_one_pass_answers(family):
    """With all experts chosen routing does not depend on how many tokens come at once."""
    from gpusim.programs.zoo.layers import Cache

    model = small(family).eval()
    ids = torch.randint(50, (1, 12))
    cache = Cache()
    with torch.no_grad():
        whole = model(ids)
        parts = [model(ids[:, :8], cache=cache)[:, -1], *(model(ids[:, i : i + 1], cache=cache)[:, -1] for i in range(8, 12))]
    assert torch.allclose(torch.stack(parts, 1), whole[:, 7:], atol=1e-4)
