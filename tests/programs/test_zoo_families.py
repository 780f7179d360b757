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
    "bloom": {"layers": 2, "width": 32, "heads": 4, "vocabulary": 50},
    "opt": {"layers": 2, "width": 32, "heads": 4, "vocabulary": 50},
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
@pytest.mark.parametrize("family", ["llama", "gemma", "gpt_oss", "deepseek", "bloom", "opt"])
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


def test_slopes_over_the_keys_are_a_bias_of_attention():
    """ALiBi (Press et al., 2022): score of a query for a key is less by the slope of the head for each token between them."""
    from gpusim.programs.zoo.bloom import Attention

    torch.manual_seed(0)
    attention, x = Attention(32, 4), torch.randn(2, 6, 32)
    query, key, value = attention.qkv(x).view(2, 6, 4, 3, 8).permute(3, 0, 2, 1, 4)
    slope = torch.tensor([2.0**-2, 2.0**-4, 2.0**-6, 2.0**-8])[:, None, None]
    at = torch.arange(6)
    bias = (-slope * (at[:, None] - at)).masked_fill(at[:, None] < at, float("-inf"))
    y = torch.nn.functional.scaled_dot_product_attention(query, key, value, bias)
    expected = attention.out(y.transpose(1, 2).reshape(2, 6, 32))
    mask = torch.zeros(6, 6).masked_fill(at[:, None] < at, torch.finfo(torch.float32).min)
    assert torch.allclose(attention(x, (slope * at).repeat(2, 1, 1), mask, None), expected, atol=1e-5)


def test_the_gradient_of_the_tanh_approximation_is_its_own():
    from gpusim.programs.zoo.bloom import TanhGelu

    x = torch.linspace(-4, 4, 33, requires_grad=True)
    torch.autograd.backward(TanhGelu.apply(x).sum())
    own, x.grad = x.grad, None
    torch.nn.functional.gelu(x, approximate="tanh").sum().backward()
    assert torch.allclose(own, x.grad, atol=1e-5)
