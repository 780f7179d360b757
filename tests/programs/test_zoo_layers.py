"""The zoo's attention and optimizers: do the implementations compute the same, and hold what they should?"""

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional

import gpusim  # noqa: E402
from gpusim.base.errors import GpusimError  # noqa: E402
from gpusim.programs.zoo import optimizers  # noqa: E402
from gpusim.programs.zoo.layers import Attend, Cache, OldSoftmax  # noqa: E402
from gpusim.trace.roles import GRADIENT, OPTIMIZER, PARAMETER, roles  # noqa: E402
from gpusim.trace.training import masters  # noqa: E402


def attending(how: str, **more: object) -> Attend:
    attend = Attend(**more)
    attend.how = how
    return attend


def heads_of(groups: int = 2, seq: int = 6):
    torch.manual_seed(0)
    return torch.randn(2, 4, seq, 8), torch.randn(2, groups, seq, 8), torch.randn(2, groups, seq, 8)


@pytest.mark.parametrize("how", ["eager", "eager-1.10"])
@pytest.mark.parametrize(("window", "groups"), [(0, 4), (0, 2), (3, 2), (6, 1)])
def test_eager_attention_computes_what_the_kernels_do(how, window, groups):
    query, key, value = heads_of(groups)
    fused = attending("sdpa", window=window)(query, key, value, causal=True)
    assert torch.allclose(attending(how, window=window)(query, key, value, causal=True), fused, atol=1e-5)


def test_the_efficient_kernel_has_heads_of_keys_repeated_for_grouped_queries():
    """PyTorch's kernel takes as many heads of keys as of queries; without that the scores would be written out."""
    with gpusim.record(fake=True) as recording:
        query, key, value = (x.requires_grad_() for x in heads_of(2))
        attending("efficient")(query, key, value, causal=True).sum().backward()
    assert {"aten._scaled_dot_product_efficient_attention.default", "aten.sum.dim_IntList"} <= set(recording.trace.op_names)


def test_a_window_hides_what_lies_before_it():
    query, key, value = heads_of(4)
    y = attending("sdpa", window=2)(query, key, value, causal=True)
    near = F.scaled_dot_product_attention(query[:, :, 4:5], key[:, :, 3:5], value[:, :, 3:5])
    assert torch.allclose(y[:, :, 4:5], near, atol=1e-5)


def test_a_sink_takes_its_share_of_the_softmax():
    """Scores 0, 0 and a sink of ln 2: the weights of two equal keys are 1/4 each."""
    query, key, value = torch.zeros(1, 1, 1, 8), torch.zeros(1, 1, 2, 8), torch.ones(1, 1, 2, 8)
    y = Attend()(query, key, value, sinks=torch.tensor([2.0]).log())
    assert torch.allclose(y, torch.full_like(y, 0.5))


def test_flash_attention_refuses_a_mask():
    query, key, value = heads_of(4)
    with pytest.raises(GpusimError, match="flash attention takes no mask"):
        attending("flash")(query, key, value, torch.ones(6, 6, dtype=torch.bool))


def test_the_old_softmax_keeps_its_input_and_has_the_same_gradient():
    x = torch.randn(3, 5, requires_grad=True)
    kept = []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        y = OldSoftmax.apply(x, None)
    assert kept == [15, 15]
    (old,) = torch.autograd.grad((y**2).sum(), x)
    (new,) = torch.autograd.grad((F.softmax(x, -1) ** 2).sum(), x)
    assert torch.allclose(old, new, atol=1e-6)


def test_the_cache_of_a_window_keeps_no_more_than_it_needs():
    """A window of 4: with a new token three older ones count."""
    cache, layer = Cache(), torch.nn.Identity()
    for _ in range(5):
        key, _ = cache.extend(layer, torch.randn(1, 1, 2, 8), torch.randn(1, 1, 2, 8), window=4)
        assert key.shape[-2] <= 3 + 2
    assert cache.layers[layer][0].shape[-2] == 3


def step_of(update: str, masters: bool = False, name: str = "adamw") -> tuple[torch.nn.Linear, object]:
    torch.manual_seed(1)
    model = torch.nn.Linear(80, 80)
    optimizer = optimizers.make(name, update, list(model.parameters()), masters)
    model(torch.ones(2, 80)).sum().backward()
    if optimizer is not None:
        optimizer.step()
    return model, optimizer


@pytest.mark.parametrize("update", ["foreach", "backward"])
@pytest.mark.parametrize("masters", [False, True])
def test_implementations_of_an_optimizer_take_the_same_step(update, masters):
    truth, found = step_of("loop")[0], step_of(update, masters)[0]
    assert torch.allclose(truth.weight, found.weight, atol=1e-7)
    assert (found.weight.grad is None) == (update == "backward")


def test_adam_in_8_bits_keeps_two_bytes_a_parameter_and_the_scales():
    """6,400 numbers in blocks of 256: 2 x 25 scales; the bias, below 4,096 numbers, keeps fp32."""
    model, optimizer = step_of("loop", name="adam8bit")
    sizes = {p.numel(): {k: v.numel() * v.element_size() for k, v in s.items()} for p, s in optimizer.state.items()}
    assert sizes == {
        6400: {"first": 6400, "second": 6400, "scales": 200}, 80: {"first": 320, "second": 320, "scales": 8},
    }  # fmt: skip
    assert optimizers.make("none", "foreach", list(model.parameters()), False) is None


def test_masters_are_optimizer_state_and_their_gradients_last_for_the_step():
    """Mixed precision by ZeRO's count: 2 bytes a parameter, 2 of gradient, 12 of state, of which a rank has its share."""
    model = torch.nn.Sequential(*(torch.nn.Linear(64, 64, bias=False) for _ in range(4))).to(torch.bfloat16)
    optimizer = optimizers.make("adamw", "loop", list(model.parameters()), masters=True)
    with gpusim.record(fake=True) as recording:
        for _ in range(2):
            model(torch.zeros(2, 64, dtype=torch.bfloat16)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
    trace, count = recording.trace, 4 * 64 * 64
    role = roles(trace)
    assert trace.phases == tuple(f"step{i}.{kind}" for i in range(2) for kind in ("fwd", "bwd", "opt", "zero"))
    assert trace.size[role == PARAMETER].sum() == 2 * count and trace.size[role == GRADIENT].sum() == 2 * 2 * count
    assert trace.size[role == OPTIMIZER].sum() == 12 * count
    of = masters(trace)
    assert sorted(of[of >= 0]) == (role == PARAMETER).nonzero()[0].tolist() and (role[of >= 0] == OPTIMIZER).all()
    divided = gpusim.transform(trace, "zero(stage=1, ranks=4)")
    assert divided.size[roles(divided) == OPTIMIZER].sum() == 12 * count // 4
