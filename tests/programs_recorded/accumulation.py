"""A language model in bfloat16 with gradient accumulation, decay groups, a cosine schedule and a utilization log."""

import contextlib
import math
import time

import torch
from torch import nn

device = "cuda" if torch.cuda.is_available() else "cpu"
dtype = "bfloat16" if torch.cuda.is_available() and torch.cuda.is_bf16_supported() else "float16"
torch.manual_seed(1337)
torch.backends.cuda.matmul.allow_tf32 = True
context = contextlib.nullcontext() if device == "cpu" else torch.amp.autocast(device_type=device, dtype=getattr(torch, dtype))


class Model(nn.Module):
    def __init__(self, vocabulary=256, width=64, layers=2, length=32) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocabulary, width), nn.Embedding(length, width)
        self.blocks = nn.ModuleList(
            nn.TransformerEncoderLayer(width, 4, 4 * width, 0.0, "gelu", batch_first=True, norm_first=True)
            for _ in range(layers)
        )
        self.head = nn.Linear(width, vocabulary, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids, targets):
        t = ids.size(1)
        x = self.tokens(ids) + self.positions(torch.arange(t, device=ids.device))
        mask = nn.Transformer.generate_square_subsequent_mask(t, device=ids.device)
        for block in self.blocks:
            x = block(x, src_mask=mask, is_causal=True)
        return nn.functional.cross_entropy(self.head(x).flatten(0, 1), targets.flatten(), ignore_index=-1)


def batch():
    data = torch.randint(0, 256, (1000,))
    at = torch.randint(len(data) - 33, (8,))
    x, y = (torch.stack([data[i + shift : i + shift + 32] for i in at]) for shift in (0, 1))
    return x.pin_memory().to(device, non_blocking=True), y.pin_memory().to(device, non_blocking=True)


model = Model().to(device)
groups = [
    {"params": [p for p in model.parameters() if p.dim() >= 2], "weight_decay": 0.1},
    {"params": [p for p in model.parameters() if p.dim() < 2], "weight_decay": 0.0},
]
optimizer = torch.optim.AdamW(groups, lr=6e-4, betas=(0.9, 0.95), fused=device == "cuda")
scaler = torch.amp.GradScaler(device, enabled=dtype == "float16")
x, y = batch()
began = time.time()
for step in range(10):
    for group in optimizer.param_groups:
        group["lr"] = 6e-4 * 0.5 * (1 + math.cos(math.pi * step / 10))
    for _ in range(4):
        with context:
            loss = model(x, y) / 4
        x, y = batch()
        scaler.scale(loss).backward()
    scaler.unscale_(optimizer)
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
    scaler.step(optimizer)
    scaler.update()
    optimizer.zero_grad(set_to_none=True)
    value = loss.item() * 4
    print(f"step {step}: loss {value:.4f}, {(time.time() - began) * 1000:.0f} ms")
