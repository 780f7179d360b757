"""How well do zstd and LZ4 compress the tensors of models that were really trained, and how fast on one core?

    pip install "gpusim[torch,bench]" && python benchmarks/codecs.py --out gpusim/machine/data/codecs.csv

Two small models are trained on the CPU: a GPT on the bytes of Python's own standard library (GELU, AdamW) and a residual CNN
on drawn shapes (batch norm, ReLU, AdamW).  After the last backward pass their parameters, gradients, Adam states and
activations are compressed, as they are (fp32) and rounded to bf16, raw and byte-shuffled (first all first bytes of the
numbers, then all second ones ...), in independent chunks of 1 MiB as a pipelined swap would send them.

Ratios are bytes before / bytes after.  Throughputs are uncompressed bytes per second of this thread's processor time, the best
of `--repeat` passes; shuffling itself is not counted.  Every chunk is unpacked and compared.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import io
import platform
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import lz4
import lz4.block
import numpy as np
import torch
import zstandard
from torch import Tensor, nn
from torch.nn import functional

CHUNK, MOST = 1 << 20, 16 << 20  # bytes that are compressed at once, and of one kind of tensor
Named = dict[str, list[Tensor]]
COLUMNS = ("model", "tensor", "dtype", "layout", "codec", "bytes", "ratio", "compress_mb_s", "decompress_mb_s")


class Block(nn.Module):
    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = nn.LayerNorm(width), nn.LayerNorm(width)
        self.qkv, self.out = nn.Linear(width, 3 * width), nn.Linear(width, width)
        self.up, self.act, self.down = nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        b, t, w = x.shape
        q, k, v = self.qkv(self.norm1(x)).view(b, t, 3, self.heads, w // self.heads).permute(2, 0, 3, 1, 4)
        mixed = functional.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(mixed.transpose(1, 2).reshape(b, t, w))
        return x + self.down(self.act(self.up(self.norm2(x))))


class Gpt(nn.Module):
    """Predicts the next byte of a text."""

    def __init__(self, width: int = 128, layers: int = 4, heads: int = 4, context: int = 128) -> None:
        super().__init__()
        self.bytes, self.places = nn.Embedding(256, width), nn.Embedding(context, width)
        self.blocks = nn.Sequential(*(Block(width, heads) for _ in range(layers)))
        self.norm, self.head = nn.LayerNorm(width), nn.Linear(width, 256)
        for p in self.parameters():
            if p.ndim > 1:
                nn.init.normal_(p, std=0.02)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.norm(self.blocks(self.bytes(x) + self.places.weight[: x.shape[1]])))


class Residual(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = nn.Conv2d(width, width, 3, padding=1, bias=False), nn.BatchNorm2d(width)
        self.act1, self.act2 = nn.ReLU(), nn.ReLU()

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm2(self.conv2(self.act1(self.norm1(self.conv1(x)))))
        return self.act2(x + y)


class Cnn(nn.Module):
    """Names the shape in an image."""

    def __init__(self, widths: tuple[int, ...] = (16, 32, 64), classes: int = 4) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, width in zip((3, *widths), widths, strict=False):
            layers += [nn.Conv2d(before, width, 3, stride=1 if before == 3 else 2, padding=1), Residual(width)]
        self.body, self.head = nn.Sequential(*layers), nn.Linear(widths[-1], classes)

    def forward(self, x: Tensor) -> Tensor:
        return self.head(self.body(x).mean((2, 3)))


def text(batch: int = 8, context: int = 128) -> Iterator[tuple[Tensor, Tensor]]:
    """Random pieces of the standard library's source."""
    files = sorted(Path(sysconfig.get_path("stdlib")).glob("*.py"))
    corpus = torch.frombuffer(bytearray(b"".join(f.read_bytes() for f in files)), dtype=torch.uint8)
    while True:
        at = torch.randint(len(corpus) - context - 1, (batch, 1)) + torch.arange(context + 1)
        piece = corpus[at].long()
        yield piece[:, :-1], piece[:, 1:]


def shapes(batch: int = 32, side: int = 32) -> Iterator[tuple[Tensor, Tensor]]:
    """Discs, squares, crosses and rings of random place, size and colour on shaded, slightly noisy grounds."""
    y, x = torch.meshgrid(torch.arange(side), torch.arange(side), indexing="ij")
    while True:
        kind = torch.randint(4, (batch,))
        centre, size = torch.rand(batch, 2, 1, 1) * side / 2 + side / 4, torch.rand(batch, 1, 1) * side / 6 + side / 10
        dy, dx = (y - centre[:, 0]).abs(), (x - centre[:, 1]).abs()
        far = (dy**2 + dx**2).sqrt()
        forms = torch.stack([far < size, torch.maximum(dy, dx) < size, (torch.minimum(dy, dx) < size / 4)
                             & (torch.maximum(dy, dx) < size), (far < size) & (far > size / 2)])  # fmt: skip
        inside = forms[kind, torch.arange(batch)].unsqueeze(1)
        slope = 0.2 * torch.randn(batch, 3, 2, 1, 1) / side
        ground = torch.rand(batch, 3, 1, 1) + slope[:, :, 0] * y + slope[:, :, 1] * x
        colour = (0.3 + 0.7 * torch.rand(batch, 3, 1, 1)) * torch.randn(batch, 1, 1, 1).sign()
        image = ground + inside * colour + 0.02 * torch.randn_like(ground)
        yield (image - image.mean((2, 3), keepdim=True)) / image.std((2, 3), keepdim=True), kind


def train(
    model: nn.Module, data: Iterator[tuple[Tensor, Tensor]], rate: float, steps: int, kept: dict[type, tuple[str, str]]
) -> tuple[Named, str]:
    """The tensors after so many steps, and how the loss fell; `kept`: what a module's input and output are called."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=rate)
    found: Named = {}
    losses = []

    def note(module: nn.Module, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        for name, tensor in zip(kept[type(module)], (inputs[0], output), strict=True):
            if name:
                found.setdefault(name, []).append(tensor.detach().clone())

    for step in range(steps):
        x, y = next(data)
        optimizer.zero_grad()
        last = [m.register_forward_hook(note) for m in model.modules() if type(m) in kept] if step == steps - 1 else []
        loss = functional.cross_entropy(model(x).flatten(0, -2), y.flatten())
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
        if step % 100 == 0:
            print(f"step {step}: loss {losses[-1]:.2f}", file=sys.stderr, flush=True)
        for hook in last:
            hook.remove()
    parameters = list(model.parameters())
    state = [optimizer.state[p] for p in parameters]
    found |= {
        "parameter": [p.detach() for p in parameters], "gradient": [p.grad for p in parameters],
        "Adam exp_avg": [s["exp_avg"] for s in state], "Adam exp_avg_sq": [s["exp_avg_sq"] for s in state],
    }  # fmt: skip
    return found, f"loss {losses[0]:.2f} to {np.mean(losses[-20:]):.2f} in {steps} steps"


def codecs() -> dict[str, tuple[Callable[[bytes], bytes], Callable[[bytes], bytes]]]:
    unpack = zstandard.ZstdDecompressor().decompress
    made = {f"zstd -{n}": (zstandard.ZstdCompressor(level=n).compress, unpack) for n in (1, 3)}
    return {**made, "LZ4": (lz4.block.compress, lz4.block.decompress)}


def layouts(tensors: list[Tensor], dtype: torch.dtype) -> Iterator[tuple[str, list[bytes]]]:
    """Chunks of the tensors one after the other, as they are and with the bytes of equal weight together."""
    flat = torch.cat([t.flatten() for t in tensors])[: MOST // dtype.itemsize].to(dtype)
    rows = flat.view(torch.uint8).numpy().reshape(-1, dtype.itemsize)
    step = CHUNK // dtype.itemsize
    parts = [rows[i : i + step] for i in range(0, len(rows), step)]
    yield "raw", [part.tobytes() for part in parts]
    yield "shuffled", [np.ascontiguousarray(part.T).tobytes() for part in parts]


def best(function: Callable[[bytes], bytes], chunks: list[bytes], repeat: int) -> tuple[list[bytes], float]:
    """What the function makes of the chunks, and its least time, s."""
    out, least = [], float("inf")
    for _ in range(repeat):
        begin = time.thread_time()
        out = [function(chunk) for chunk in chunks]
        least = min(least, time.thread_time() - begin)
    return out, least


def measured(model: str, tensors: Named, repeat: int) -> Iterator[tuple[str, ...]]:
    for name, those in tensors.items():
        for dtype in (torch.float32, torch.bfloat16):
            for layout, chunks in layouts(those, dtype):
                size = sum(map(len, chunks))
                for codec, (pack, unpack) in codecs().items():
                    packed, packing = best(pack, chunks, repeat)
                    unpacked, unpacking = best(unpack, packed, repeat)
                    if unpacked != chunks:
                        raise SystemExit(f"{codec} does not give {name} back")
                    shown = {torch.float32: "fp32", torch.bfloat16: "bf16"}[dtype]
                    ratio = size / sum(map(len, packed))
                    yield (model, name, shown, layout, codec, str(size), f"{ratio:.3f}", f"{size / packing / 1e6:.0f}",
                           f"{size / unpacking / 1e6:.0f}")  # fmt: skip


def processor() -> str:
    """The CPU as the system names it."""
    info = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    found = dict(line.split(":", 1) for line in info.split("\n\n")[0].splitlines() if ":" in line)
    fields = {key.strip(): value.strip() for key, value in found.items()}
    if not fields:
        return platform.processor()
    family = ", ".join(f"{word} {fields[word]}" for word in ("cpu family", "model", "stepping", "cache size") if word in fields)
    return f"{fields.get('model name', '')} ({family})"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, help="write the measurements here as well")
    parser.add_argument("--steps", type=int, default=400)
    parser.add_argument("--repeat", type=int, default=3)
    options = parser.parse_args()
    torch.manual_seed(0)
    torch.set_num_threads(1)
    gpt = {nn.LayerNorm: ("residual stream", "layer norm out"), nn.GELU: ("GELU in", "GELU out")}
    cnn = {nn.Conv2d: ("", "convolution out"), nn.BatchNorm2d: ("", "batch norm out"), nn.ReLU: ("", "ReLU out")}
    runs = {"GPT": train(Gpt(), text(), 1e-3, options.steps, gpt), "CNN": train(Cnn(), shapes(), 2e-3, options.steps, cnn)}
    lines = [
        f"measured {datetime.date.today()} by benchmarks/codecs.py on one core of {processor()}",
        f"Python {platform.python_version()}, torch {torch.__version__}, zstandard {zstandard.__version__} with zstd "
        f"{'.'.join(map(str, zstandard.ZSTD_VERSION))}, lz4 {lz4.__version__} with LZ4 {lz4.library_version_string()}",
        *(f"{name}: {fell}" for name, (_, fell) in runs.items()),
    ]
    out = io.StringIO()
    out.writelines(f"# {line}\n" for line in lines)
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(COLUMNS)
    for name, (tensors, _) in runs.items():
        writer.writerows(measured(name, tensors, options.repeat))
    print(out.getvalue(), end="")
    if options.out:
        options.out.write_text(out.getvalue())


if __name__ == "__main__":
    main()
