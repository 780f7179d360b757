"""Trains a small model with experts on the CPU and records which experts it chooses: `python traces/routing/tiny_moe.py`.

32 layers of 8 experts, of which each token has 2, as Mixtral 8x7B has; but of width 64, on bytes, trained for some minutes on
sources of Python's standard library.  The texts that are recorded were not trained on.
"""

from __future__ import annotations

import sys
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.record.routing import record_routing
from gpusim.programs.serving.routing import write

LAYERS, EXPERTS, CHOSEN, WIDTH, HIDDEN, HEADS = 32, 8, 2, 64, 64, 4
STEPS, BATCH, LENGTH, PROMPT, SEED = 160, 4, 128, 48, 0
TRAINED = ("argparse", "ast", "calendar", "configparser", "csv", "datetime", "doctest", "dataclasses", "fractions", "inspect")
RECORDED = ("textwrap", "shutil", "statistics", "tarfile")  # four texts of each


class MoE(nn.Module):
    """All experts of all tokens, of which the chosen ones count."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = nn.Linear(WIDTH, EXPERTS, bias=False)
        self.up = nn.Parameter(torch.randn(EXPERTS, WIDTH, HIDDEN) * WIDTH**-0.5)
        self.down = nn.Parameter(torch.randn(EXPERTS, HIDDEN, WIDTH) * HIDDEN**-0.5 / LAYERS**0.5)
        self.balance = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        scores = F.softmax(self.gate(x), -1)
        best, which = scores.topk(CHOSEN, -1)
        weight = torch.zeros_like(scores).scatter(-1, which, best / best.sum(-1, keepdim=True))
        self.balance = EXPERTS * (scores.mean((0, 1)) * (weight > 0).float().mean((0, 1))).sum()
        inner = F.silu(torch.einsum("btd,edh->bteh", x, self.up)) * weight[..., None]
        return torch.einsum("bteh,ehd->btd", inner, self.down)


class Block(nn.Module):
    """Attention and experts."""

    def __init__(self) -> None:
        super().__init__()
        self.norms = nn.ModuleList(nn.LayerNorm(WIDTH) for _ in range(2))
        self.qkv, self.out, self.moe = nn.Linear(WIDTH, 3 * WIDTH), nn.Linear(WIDTH, WIDTH), MoE()

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = (part.unflatten(-1, (HEADS, -1)).transpose(1, 2) for part in self.qkv(self.norms[0](x)).chunk(3, -1))
        x = x + self.out(F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).flatten(2))
        return x + self.moe(self.norms[1](x))


class Tiny(nn.Module):
    """A decoder on bytes."""

    def __init__(self) -> None:
        super().__init__()
        self.tokens, self.places = nn.Embedding(256, WIDTH), nn.Embedding(LENGTH, WIDTH)
        nn.init.normal_(self.tokens.weight, std=WIDTH**-0.5)
        self.blocks = nn.ModuleList(Block() for _ in range(LAYERS))
        self.norm = nn.LayerNorm(WIDTH)

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids) + self.places.weight[: ids.shape[1]]
        for block in self.blocks:
            x = block(x)
        return self.norm(x) @ self.tokens.weight.T


def text(modules: tuple[str, ...]) -> list[Tensor]:
    """Bytes of modules' sources."""
    paths = [Path(__import__(name).__file__ or "") for name in modules]
    return [torch.tensor(list(path.read_bytes())) for path in paths]


def main() -> None:
    torch.manual_seed(SEED)
    model, known = Tiny(), torch.cat(text(TRAINED))
    optimizer = torch.optim.AdamW(model.parameters(), 2e-3)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 2e-3, STEPS)
    for step in range(STEPS):
        begins = torch.randint(len(known) - LENGTH - 1, (BATCH,))
        ids = torch.stack([known[b : b + LENGTH + 1] for b in begins.tolist()])
        loss = F.cross_entropy(model(ids[:, :-1]).flatten(0, 1), ids[:, 1:].flatten())
        balance = torch.stack([block.moe.balance for block in model.blocks]).mean()
        optimizer.zero_grad()
        (loss + 0.02 * balance).backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        if step % 50 == 0 or step == STEPS - 1:
            print(f"step {step}: {loss.item():.3f} nats a byte, balance {balance.item():.2f}", flush=True)
    texts = [one[at : at + LENGTH] for one in text(RECORDED) for at in range(4000, 12000, 2000)]
    version = ".".join(map(str, sys.version_info[:2]))
    trained = f"{STEPS} steps, {loss.item():.2f} nats a byte of Python {version}'s sources"
    routing = record_routing(
        model.eval(), [block.moe.gate for block in model.blocks], texts, chosen=CHOSEN, prompt=PROMPT,
        source=f"tiny_moe.py, seed {SEED}, {trained}; not Mixtral",
    )  # fmt: skip
    write(routing, Path(__file__).with_name("tiny-moe.txt.gz"))


if __name__ == "__main__":
    main()
