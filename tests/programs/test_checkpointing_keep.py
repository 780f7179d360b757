"""Is checkpointing that keeps the results of some operators the program that PyTorch's selective policy makes?"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import pytest

import gpusim
from gpusim.base.errors import TraceError
from gpusim.trace.stats import live_bytes
from gpusim.trace.trace import Trace

torch = pytest.importorskip("torch", reason="recording needs PyTorch")
pytestmark = [pytest.mark.oracle, pytest.mark.slow]

WIDTH, BATCH = 256, 2048


class Layer(torch.nn.Module):  # type: ignore[misc, name-defined]
    def __init__(self, keep: str | None) -> None:
        super().__init__()
        self.norm, self.keep = torch.nn.LayerNorm(WIDTH), keep
        self.up, self.down = torch.nn.Linear(WIDTH, 4 * WIDTH), torch.nn.Linear(4 * WIDTH, WIDTH)

    def _run(self, x: Any) -> Any:
        return x + self.down(torch.nn.functional.gelu(self.up(self.norm(x))))

    def forward(self, x: Any) -> Any:
        from torch.utils.checkpoint import CheckpointPolicy, checkpoint, create_selective_checkpoint_contexts

        def policy(context: Any, operator: Any, *args: Any, **kwargs: Any) -> Any:
            kept = str(operator) == f"{self.keep}.default"
            return CheckpointPolicy.MUST_SAVE if kept else CheckpointPolicy.PREFER_RECOMPUTE

        if self.keep is None:
            return self._run(x)
        return checkpoint(
            self._run, x, use_reentrant=False, context_fn=partial(create_selective_checkpoint_contexts, policy)
        )


def recorded(path: Path, keep: str | None) -> Trace:
    net = torch.nn.Sequential(*(Layer(keep) for _ in range(4)))
    optimizer, x = torch.optim.SGD(net.parameters(), lr=0.1), torch.randn(BATCH, WIDTH)
    with gpusim.record(path, fake=True):
        for _ in range(2):
            net(x).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()
    return gpusim.load_trace(path)


@pytest.mark.parametrize("keep", ["aten.addmm", "aten.gelu"])
def test_as_many_operators_and_as_many_bytes_as_recorded_under_the_policy(tmp_path: Path, keep: str) -> None:
    plain, real = recorded(tmp_path / "plain.npz", None), recorded(tmp_path / "real.npz", keep)
    made = gpusim.transform(plain, f"checkpointing(keep={keep})")
    assert made.ops == real.ops and made.flops.sum() == real.flops.sum()
    peak, wanted = (int(live_bytes(trace, trace.size).max()) for trace in (made, real))
    assert peak == pytest.approx(wanted, rel=0.015)
    least = int(live_bytes(t := gpusim.transform(plain, "checkpointing"), t.size).max())
    assert least < peak < int(live_bytes(plain, plain.size).max())


def test_an_operator_that_the_program_does_not_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(TraceError, match=r"plain runs no operator 'aten.adm' \(did you mean"):
        gpusim.transform(recorded(tmp_path / "plain.npz", None), "checkpointing(keep=aten.adm)")
