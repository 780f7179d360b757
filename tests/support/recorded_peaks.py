"""Peaks of recordings beside peaks that were measured on GPUs and published.

`python tests/support/recorded_peaks.py` prints the table.

The program is OPT-350m as its library wrote it in 2024, in float16: forward, the sum of the logits, backward, no optimizer, and
the loop holds the last output, logits and the cache of keys and values, while the next one is made.
tests/data/recorded_peaks.csv has the published figures: torch.cuda.max_memory_allocated / 10^6 (PyTorch 2.4.0, L40S).
"""

from __future__ import annotations

import csv
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import nn

import gpusim
from gpusim.trace.trace import ALLOC, FREE, PHASE, Trace

PUBLISHED = Path(__file__).parents[1] / "data" / "recorded_peaks.csv"
WIDTH, HEADS, LAYERS, NARROW, WORDS, LENGTH = 1024, 16, 24, 512, 50_272, 2048


class Attention(nn.Module):
    """Plain operators ("eager") or the kernel that PyTorch chooses ("sdpa")."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.q, self.k, self.v, self.out = (nn.Linear(WIDTH, WIDTH) for _ in range(4))

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, Any]:
        b, t, _ = x.shape
        heads = lambda y: y.view(b, t, HEADS, -1).transpose(1, 2).contiguous()  # noqa: E731
        if self.kind == "sdpa":
            q, k, v = heads(self.q(x)), heads(self.k(x)), heads(self.v(x))
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(b, t, WIDTH)), (k, v)
        q = self.q(x) * (WIDTH // HEADS) ** -0.5
        k, v = heads(self.k(x)).view(b * HEADS, t, -1), heads(self.v(x)).view(b * HEADS, t, -1)
        scores = torch.bmm(heads(q).view(b * HEADS, t, -1), k.transpose(1, 2))
        scores = scores.view(b, HEADS, t, t) + mask
        scores = torch.max(scores, torch.tensor(torch.finfo(scores.dtype).min, device=scores.device))
        scores = scores.view(b * HEADS, t, t)
        scores = F.softmax(scores, dim=-1, dtype=torch.float32).to(torch.float16)
        y = torch.bmm(scores, v)
        return self.out(y.view(b, HEADS, t, -1).transpose(1, 2).reshape(b, t, WIDTH)), (k, v)


class Layer(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.attention, self.first, self.second = Attention(kind), nn.LayerNorm(WIDTH), nn.LayerNorm(WIDTH)
        self.up, self.down = nn.Linear(WIDTH, 4 * WIDTH), nn.Linear(4 * WIDTH, WIDTH)

    def forward(self, x: torch.Tensor, mask: torch.Tensor | None) -> tuple[torch.Tensor, Any]:
        attended, cache = self.attention(x, mask)
        x = self.first(x + F.dropout(attended, 0.1))
        shape = x.shape
        x = x.reshape(-1, WIDTH)
        y = F.dropout(self.down(F.relu(self.up(x))), 0.1)
        return self.second((x + y).view(shape)), cache


class Opt(nn.Module):
    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind = kind
        self.words, self.places = nn.Embedding(WORDS, NARROW, padding_idx=1), nn.Embedding(LENGTH + 2, WIDTH)
        self.into, self.back = nn.Linear(NARROW, WIDTH, bias=False), nn.Linear(WIDTH, NARROW, bias=False)
        self.layers = nn.ModuleList(Layer(kind) for _ in range(LAYERS))
        self.head = nn.Linear(NARROW, WORDS, bias=False)
        self.head.weight = self.words.weight

    def forward(self, ids: torch.Tensor) -> tuple[torch.Tensor, Any]:
        b, t = ids.shape
        words = self.words(ids)
        mask = None
        if self.kind == "eager":
            lowest = torch.finfo(words.dtype).min
            mask = torch.full((t, t), lowest, dtype=words.dtype, device=ids.device).triu(1).expand(b, 1, t, t).clone()
        present = torch.ones_like(ids)
        places = self.places((torch.cumsum(present, 1) * present).long() - 1 + 2)
        x = self.into(words) + places
        caches = []
        for layer in self.layers:
            x, cache = layer(x, mask)
            caches.append(cache)
        return self.head(self.back(x)).contiguous(), caches


def record(kind: str, batch: int, length: int) -> Trace:
    with gpusim.record(fake=True, device="cpu", gpu="ada") as recording:
        model = Opt(kind).half().cuda().train()
        ids = torch.randint(WORDS - 1, (batch, length)).cuda()
        for step in ("first", "second"):
            gpusim.record.phase(step)
            model.zero_grad()
            out = model(ids)
            loss = out[0].sum()
            loss.backward()
    return recording.trace


def peak_mb(trace: Trace) -> float:
    """The most that is allocated in the second step, as PyTorch counts: in blocks of 512 bytes."""
    sign = np.where(trace.kind == ALLOC, 1, np.where(trace.kind == FREE, -1, 0))
    size = np.where(sign != 0, trace.size[np.where(sign != 0, trace.arg, 0)], 0)
    held = np.cumsum(sign * (-(-size // 512) * 512))
    begin = np.flatnonzero((trace.kind == PHASE) & (trace.arg == trace.phases.index("second")))[0]
    return float(held[begin:].max()) / 1e6


def published() -> list[tuple[str, int, int, float]]:
    with PUBLISHED.open() as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [(row["attention"], int(row["batch"]), int(row["tokens"]), float(row["peak_mb"])) for row in rows]


if __name__ == "__main__":
    print("| attention | batch | tokens | measured, MB | recorded, MB | error |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    for kind, batch, length, real in published():
        if len(sys.argv) > 1 and kind not in sys.argv[1:]:
            continue
        ours = peak_mb(record(kind, batch, length))
        print(f"| {kind} | {batch} | {length} | {real:,.1f} | {ours:,.1f} | {(ours / real - 1) * 100:+.2f} % |", flush=True)
