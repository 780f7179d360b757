"""The transformer of Flux.1 as in diffusers' FluxTransformer2DModel: blocks over text and image side by side, then as one.

One training step predicts the velocity of a batch of latents (an eighth of the image's resolution, in patches of 2 x 2); the
image autoencoder and the text encoders, which are frozen and can run beforehand, are not part of it.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from gpusim.programs.zoo.layers import Attend, heads, rotate

CHANNELS, TEXT, POOLED, TOKENS, WAVES = 64, 4096, 768, 512, 256
AXES = (16, 56, 56)  # of a head: numbers turned by the sequence, the row, the column

Turn = tuple[Tensor, Tensor]


class Modulation(nn.Module):
    """Shifts, scales and gates of a block, each (batch, 1, width), from the embedded time."""

    def __init__(self, width: int, parts: int) -> None:
        super().__init__()
        self.parts, self.project = parts, nn.Linear(width, parts * width)

    def forward(self, time: Tensor) -> tuple[Tensor, ...]:
        return self.project(F.silu(time))[:, None].chunk(self.parts, dim=-1)


def modulated(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return F.layer_norm(x, x.shape[-1:], eps=1e-6) * (1 + scale) + shift


class Heads(nn.Module):
    """Queries, keys and values of one sequence, the first two normed."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.size = width // heads
        self.q, self.k, self.v = (nn.Linear(width, width) for _ in range(3))
        self.norm_q, self.norm_k = nn.RMSNorm(self.size, eps=1e-6), nn.RMSNorm(self.size, eps=1e-6)

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        query, key, value = (heads(project(x), self.size) for project in (self.q, self.k, self.v))
        return self.norm_q(query), self.norm_k(key), value


def attended(attend: Attend, read: tuple[Tensor, ...], turn: Turn) -> Tensor:
    query, key, value = read
    y = attend(rotate(query, *turn).to(value.dtype), rotate(key, *turn).to(value.dtype), value)
    return y.transpose(1, 2).flatten(2)


class Double(nn.Module):
    """Text and image have weights of their own and attend to both."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.modulations = nn.ModuleList(Modulation(width, 6) for _ in range(2))
        self.heads = nn.ModuleList(Heads(width, heads) for _ in range(2))
        self.outs = nn.ModuleList(nn.Linear(width, width) for _ in range(2))
        self.mlps = nn.ModuleList(
            nn.Sequential(nn.Linear(width, 4 * width), nn.GELU("tanh"), nn.Linear(4 * width, width)) for _ in range(2)
        )
        self.attend = Attend()

    def forward(self, text: Tensor, image: Tensor, time: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
        streams = text, image
        parts = [modulation(time) for modulation in self.modulations]
        read = [make(modulated(x, p[0], p[1])) for make, x, p in zip(self.heads, streams, parts, strict=True)]
        y = attended(self.attend, tuple(torch.cat(both, dim=2) for both in zip(*read, strict=True)), turn)
        answers = y[:, : text.shape[1]].contiguous(), y[:, text.shape[1] :].contiguous()
        found = []
        for x, answer, p, out, mlp in zip(streams, answers, parts, self.outs, self.mlps, strict=True):
            x = x + p[2] * out(answer)
            found.append(x + p[5] * mlp(modulated(x, p[3], p[4])))
        return found[0], found[1]


class Single(nn.Module):
    """Text and image as one sequence; attention and perceptron side by side."""

    def __init__(self, width: int, heads: int) -> None:
        super().__init__()
        self.modulation, self.heads = Modulation(width, 3), Heads(width, heads)
        self.inside, self.out = nn.Linear(width, 4 * width), nn.Linear(5 * width, width)
        self.attend = Attend()

    def forward(self, text: Tensor, image: Tensor, time: Tensor, turn: Turn) -> tuple[Tensor, Tensor]:
        x = torch.cat((text, image), dim=1)
        shift, scale, gate = self.modulation(time)
        y = modulated(x, shift, scale)
        hidden = F.gelu(self.inside(y), approximate="tanh")
        y = torch.cat((attended(self.attend, self.heads(y), turn), hidden), dim=2)
        x = x + gate * self.out(y)
        return x[:, : text.shape[1]], x[:, text.shape[1] :]


def perceptron(inside: int, width: int) -> nn.Sequential:
    return nn.Sequential(nn.Linear(inside, width), nn.SiLU(), nn.Linear(width, width))


class Model(nn.Module):
    """guided: the strength of guidance is an input, as in Flux.1 dev."""

    def __init__(self, guided: bool, doubles: int = 19, singles: int = 38, width: int = 3072, heads: int = 24) -> None:
        super().__init__()
        self.image, self.text = nn.Linear(CHANNELS, width), nn.Linear(TEXT, width)
        self.time, self.pooled = perceptron(WAVES, width), perceptron(POOLED, width)
        self.guidance = perceptron(WAVES, width) if guided else None
        blocks = [Double(width, heads) for _ in range(doubles)], [Single(width, heads) for _ in range(singles)]
        self.blocks = nn.ModuleList([*blocks[0], *blocks[1]])
        self.modulation = Modulation(width, 2)
        self.head = nn.Linear(width, CHANNELS)

    def inputs(self, batch: int, image: int) -> dict[str, Tensor]:
        patches = (image // 16) ** 2
        latents, labels = (torch.randn(batch, patches, CHANNELS) for _ in range(2))
        text, pooled = torch.randn(batch, TOKENS, TEXT), torch.randn(batch, POOLED)
        return {"latents": latents, "when": torch.rand(batch), "text": text, "pooled": pooled, "labels": labels}

    def waves(self, when: Tensor) -> Tensor:
        """Cosines and sines of the time, in fp32."""
        rates = torch.exp(-math.log(10000.0) / (WAVES // 2) * torch.arange(WAVES // 2, device=when.device).float())
        angles = 1000.0 * when[:, None].float() * rates
        return torch.cat((angles.cos(), angles.sin()), dim=-1)

    @torch.no_grad()
    def turn(self, text: Tensor, latents: Tensor) -> Turn:
        """Cosines and sines of a head's numbers at every token, by the three axes, in fp32."""
        side = math.isqrt(latents.shape[1])
        row = torch.arange(side, device=latents.device).repeat_interleave(side)
        column = torch.arange(side, device=latents.device).repeat(side)
        angles = []
        for axis, size in enumerate(AXES):
            where = torch.zeros(text.shape[1] + len(row), device=latents.device)
            if axis:
                where[text.shape[1] :] = (row if axis == 1 else column).float()
            rates = 10000.0 ** (-torch.arange(0, size, 2, device=latents.device).float() / size)
            angles.append(where[:, None] * rates)
        both = torch.cat(angles, dim=-1)
        both = torch.cat((both, both), dim=-1)
        return both.cos(), both.sin()

    def forward(
        self, latents: Tensor, when: Tensor, text: Tensor, pooled: Tensor, labels: Tensor | None = None
    ) -> Tensor:
        turn = self.turn(text, latents)
        waves = self.waves(when).to(latents.dtype)
        time = self.time(waves) + self.pooled(pooled)
        if self.guidance is not None:
            time = time + self.guidance(waves)
        read, x = self.text(text), self.image(latents)
        for block in self.blocks:
            read, x = block(read, x, time, turn)
        velocity = self.head(modulated(x, *self.modulation(time)))
        return velocity if labels is None else F.mse_loss(velocity.float(), labels.float())
