"""The UNets of Stable Diffusion 1.5 and XL as in diffusers' UNet2DConditionModel.

One training step predicts the noise in a batch of latents (an eighth of the image's resolution); the image autoencoder and
the text encoder, which are frozen and can run beforehand, are not part of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Attend, heads

LATENT, TOKENS, TIMESTEPS = 4, 77, 1000
POOLED, SIZES, WAVES = 1280, 6, 256  # what SDXL adds to the time: a pooled text, six numbers of the image's size as waves
SCALE = 1.0  # diffusers divides by it, which takes an operator and a tensor


class Residual(nn.Module):
    """Two convolutions with the time between them."""

    def __init__(self, inside: int, outside: int, time: int) -> None:
        super().__init__()
        self.norm_1 = nn.GroupNorm(32, inside)
        self.conv_1 = nn.Conv2d(inside, outside, 3, padding=1)
        self.time = nn.Linear(time, outside)
        self.norm_2 = nn.GroupNorm(32, outside)
        self.conv_2 = nn.Conv2d(outside, outside, 3, padding=1)
        self.shortcut = nn.Conv2d(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: Tensor, time: Tensor) -> Tensor:
        y = self.conv_1(F.silu(self.norm_1(x))) + self.time(F.silu(time))[:, :, None, None]
        y = self.conv_2(F.silu(self.norm_2(y)))
        return (self.shortcut(x) + y) / SCALE


class Attention(nn.Module):
    """Of x to itself, or to another sequence."""

    def __init__(self, width: int, heads: int, other: int) -> None:
        super().__init__()
        self.size = width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.k = nn.Linear(other, width, bias=False)
        self.v = nn.Linear(other, width, bias=False)
        self.out = nn.Linear(width, width)
        self.attend = Attend()

    def forward(self, x: Tensor, other: Tensor | None = None) -> Tensor:
        other = x if other is None else other
        query, key, value = heads(self.q(x), self.size), heads(self.k(other), self.size), heads(self.v(other), self.size)
        y = self.attend(query, key, value)
        return self.out(y.transpose(1, 2).reshape(x.shape)) / SCALE


class Gated(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.project = nn.Linear(width, 8 * width)
        self.out = nn.Linear(4 * width, width)

    def forward(self, x: Tensor) -> Tensor:
        value, gate = self.project(x).chunk(2, dim=-1)
        return self.out(value * F.gelu(gate))


class Layer(nn.Module):
    """Self-attention, attention to the text and a gated perceptron."""

    def __init__(self, width: int, heads: int, text: int) -> None:
        super().__init__()
        self.norm_1 = nn.LayerNorm(width)
        self.to_self = Attention(width, heads, width)
        self.norm_2 = nn.LayerNorm(width)
        self.to_text = Attention(width, heads, text)
        self.norm_3 = nn.LayerNorm(width)
        self.mlp = Gated(width)

    def forward(self, y: Tensor, text: Tensor) -> Tensor:
        y = self.to_self(self.norm_1(y)) + y
        y = self.to_text(self.norm_2(y), text) + y
        return self.mlp(self.norm_3(y)) + y


class Transformer(nn.Module):
    """Layers over all pixels; into them and out again by a convolution, or by a linear layer."""

    def __init__(self, width: int, heads: int, depth: int, text: int, linear: bool) -> None:
        super().__init__()
        self.linear = linear
        self.norm = nn.GroupNorm(32, width, eps=1e-6)
        self.inside = nn.Linear(width, width) if linear else nn.Conv2d(width, width, 1)
        self.layers = nn.ModuleList(Layer(width, heads, text) for _ in range(depth))
        self.outside = nn.Linear(width, width) if linear else nn.Conv2d(width, width, 1)

    def forward(self, x: Tensor, text: Tensor) -> Tensor:
        y = self.norm(x)
        y = self.inside(pixels(y)) if self.linear else pixels(self.inside(y))
        for layer in self.layers:
            y = layer(y, text)
        if self.linear:
            return self.outside(y).transpose(1, 2).reshape(x.shape).contiguous() + x
        return self.outside(y.transpose(1, 2).reshape(x.shape).contiguous()) + x


def pixels(x: Tensor) -> Tensor:
    """(batch, pixels, width), a view."""
    return x.flatten(2).transpose(1, 2)


class Block(nn.Module):
    """A residual block and, where the resolution has one, a transformer."""

    def __init__(self, inside: int, outside: int, time: int, transformer: Transformer | None) -> None:
        super().__init__()
        self.residual = Residual(inside, outside, time)
        self.transformer = transformer

    def forward(self, x: Tensor, time: Tensor, text: Tensor) -> Tensor:
        x = self.residual(x, time)
        return x if self.transformer is None else self.transformer(x, text)


class Upsample(nn.Module):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.conv = nn.Conv2d(width, width, 3, padding=1)

    def forward(self, x: Tensor) -> Tensor:
        return self.conv(F.interpolate(x, scale_factor=2.0, mode="nearest"))


class Model(nn.Module):
    """Down through the widths with two blocks each and up again with three.

    depths   layers of a transformer at each width, and in the middle; 0: none
    heads    of the attention at each width
    text     width of the text's tokens
    linear   into transformers by linear layers
    added    SDXL's embedding of a pooled text and of sizes
    """

    def __init__(
        self, widths: Sequence[int] = (320, 640, 1280, 1280), depths: Sequence[int] = (1, 1, 1, 0, 1),
        heads: Sequence[int] = (8, 8, 8, 8), text: int = 768, linear: bool = False, added: bool = False,
    ) -> None:  # fmt: skip
        super().__init__()
        self.first, self.text, time = widths[0], text, 4 * widths[0]
        self.time = nn.Sequential(nn.Linear(widths[0], time), nn.SiLU(), nn.Linear(time, time))
        self.added = nn.Sequential(nn.Linear(POOLED + SIZES * WAVES, time), nn.SiLU(), nn.Linear(time, time)) if added else None
        self.inside = nn.Conv2d(LATENT, widths[0], 3, padding=1)

        def block(inside: int, level: int, depth: int) -> Block:
            wide = widths[level]
            return Block(inside, wide, time, Transformer(wide, heads[level], depth, text, linear) if depth else None)

        self.down, self.up = nn.ModuleList(), nn.ModuleList()
        skips, last = [width := widths[0]], len(widths) - 1
        for level, wanted in enumerate(widths):
            for _ in range(2):
                self.down.append(block(width, level, depths[level]))
                skips.append(width := wanted)
            if level != last:
                self.down.append(nn.Conv2d(width, width, 3, stride=2, padding=1))
                skips.append(width)
        self.middle = nn.ModuleList([block(width, last, depths[-1]), block(width, last, 0)])
        for level, wanted in reversed(list(enumerate(widths))):
            for _ in range(3):
                self.up.append(block(width + skips.pop(), level, depths[level]))
                width = wanted
            if level:
                self.up.append(Upsample(width))
        self.norm = nn.GroupNorm(32, width)
        self.outside = nn.Conv2d(width, LATENT, 3, padding=1)
        self.blocks = nn.ModuleList(b for b in (*self.down, *self.middle, *self.up) if isinstance(b, Block))

    def inputs(self, batch: int, image: int) -> dict[str, Tensor]:
        shape = batch, LATENT, image // 8, image // 8
        text, when = torch.randn(batch, TOKENS, self.text), torch.randint(TIMESTEPS, (batch,))
        more = {} if self.added is None else {"pooled": torch.randn(batch, POOLED), "sizes": torch.rand(batch, SIZES)}
        return {"latents": torch.randn(shape), "when": when, "text": text, "labels": torch.randn(shape), **more}

    def waves(self, numbers: Tensor, width: int) -> Tensor:
        """Cosines and sines of numbers (of any shape), in fp32; `width` of them for each."""
        half = width // 2
        rates = torch.exp(-math.log(10000.0) / half * torch.arange(half, dtype=torch.float32, device=numbers.device))
        angles = numbers[..., None].float() * rates
        return torch.cat((torch.cos(angles), torch.sin(angles)), dim=-1)

    def embedded(self, when: Tensor, pooled: Tensor | None, sizes: Tensor | None, dtype: torch.dtype) -> Tensor:
        time = self.time(self.waves(when, self.first).to(dtype))
        if self.added is None or pooled is None or sizes is None:
            return time
        return time + self.added(torch.cat((pooled, self.waves(sizes, WAVES).flatten(1).to(dtype)), dim=-1))

    def forward(
        self, latents: Tensor, when: Tensor, text: Tensor, labels: Tensor | None = None, pooled: Tensor | None = None,
        sizes: Tensor | None = None,
    ) -> Tensor:  # fmt: skip
        time = self.embedded(when, pooled, sizes, latents.dtype)
        x = self.inside(latents)
        skips = [x]
        for down in self.down:
            x = down(x, time, text) if isinstance(down, Block) else down(x)
            skips.append(x)
        for middle in self.middle:
            x = middle(x, time, text)
        for up in self.up:
            x = up(torch.cat((x, skips.pop()), dim=1), time, text) if isinstance(up, Block) else up(x)
        noise = self.outside(F.silu(self.norm(x)))
        return noise if labels is None else F.mse_loss(noise.float(), labels.float())
