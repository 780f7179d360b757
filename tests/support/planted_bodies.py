"""Ordinary programs: training and inference of transformers and convolutional networks, as an allocator sees them."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field

from planted_library import MIB, Op

MAIN = "train.py:88:main"
FORWARD, BACKWARD = f"train.py:54:train_step>{MAIN}", f"train.py:58:train_step>{MAIN}"


@dataclass
class Writer:
    """A program in the making."""

    rng: random.Random
    ops: list[Op] = field(default_factory=list)
    ids: int = 0

    def alloc(self, size: int, stack: str, stream: int = 0) -> int:
        self.ids += 1
        self.ops.append(("a", self.ids, max(1, int(size)), stream, stack))
        return self.ids

    def free(self, *ids: int) -> None:
        self.ops.extend(("f", k) for k in ids)

    def temp(self, size: int, stack: str, stream: int = 0) -> None:
        self.free(self.alloc(size, stack, stream))

    def add(self, *op: object) -> None:
        self.ops.append(op)


Hook = Callable[[Writer, str, int], None]  # called with ("load" | "forward" | "peak" | "end", step)


@dataclass(frozen=True)
class Shape:
    layers: int
    hidden: int
    tokens: int
    word: int  # bytes of an element
    vocab: int
    steps: int

    @staticmethod
    def of(rng: random.Random) -> Shape:
        return Shape(rng.randrange(3, 8), rng.choice([1536, 2048, 3072, 4096, 5120]), 1024 * rng.randrange(3, 20),
                     rng.choice([2, 2, 4]), rng.choice([8192, 32000, 50257]), rng.randrange(6, 10))  # fmt: skip

    def weights(self) -> list[int]:
        h = self.hidden * self.hidden * self.word
        return [self.vocab * self.hidden * self.word, *([3 * h, h, 4 * h, 4 * h] * self.layers)]


def train(w: Writer, hook: Hook) -> None:
    """Adam; gradients are dropped at each step's end."""
    s = Shape.of(w.rng)
    act, micro = s.tokens * s.hidden * s.word, w.rng.choice([1, 1, 1, 2])
    fused, checkpointed, prefetch = w.rng.random() < 0.5, w.rng.random() < 0.2, w.rng.random() < 0.25
    params = [w.alloc(size, f"model.py:31:__init__>{MAIN}") for size in s.weights()]
    norms = [w.alloc(4 * s.hidden, f"model.py:35:__init__>{MAIN}") for _ in range(2 * s.layers)]
    assert params and norms
    hook(w, "load", 0)
    states: list[int] = []
    for step in range(s.steps):
        grads: dict[int, int] = {}
        for _ in range(micro):
            batch = w.alloc(s.tokens * 8, f"data.py:40:__iter__>{MAIN}", 1 if prefetch else 0)
            _pass(w, s, act, grads, checkpointed, hook, step)
            w.free(batch)
        for n, size in enumerate(s.weights()):
            if step == 0:
                states += [w.alloc(2 * size if s.word == 2 else size, f"adam.py:{k}:_init_group>{MAIN}") for k in (70, 74)]
            if not fused and n % 4 == 1:
                w.temp(size, f"adam.py:120:_single_tensor_adam>{MAIN}")
        w.free(*grads.values())
        w.add("step")
        hook(w, "end", step)


def _pass(w: Writer, s: Shape, act: int, grads: dict[int, int], checkpointed: bool, hook: Hook, step: int) -> None:
    saved: list[list[int]] = []
    hook(w, "forward", step)
    sizes, names = [act, 3 * act, act, 4 * act], ["norm", "attention", "project", "mlp"]
    for _ in range(s.layers):
        mine = [w.alloc(size, f"layers.py:{20 + 7 * k}:{name}>model.py:52:forward>{FORWARD}")
                for k, (size, name) in enumerate(zip(sizes, names, strict=True))]  # fmt: skip
        w.temp(2 * act, f"layers.py:31:attention>model.py:52:forward>{FORWARD}")
        if checkpointed:
            w.free(*mine[1:])
            mine = mine[:1]
        saved.append(mine)
    logits = w.alloc(s.tokens * s.vocab * s.word // 2, f"model.py:60:forward>{FORWARD}")
    loss = w.alloc(4, f"loss.py:9:cross_entropy>{FORWARD}")
    hook(w, "peak", step)
    w.temp(s.tokens * s.vocab * s.word // 2, f"loss.py:12:backward>{BACKWARD}")
    w.free(logits)
    weights = s.weights()
    for layer in range(s.layers - 1, -1, -1):
        flowing = w.alloc(act, f"layers.py:60:backward>{BACKWARD}")
        for k in range(3, -1, -1):
            n = 1 + 4 * layer + k
            w.temp(sizes[k], f"layers.py:{61 + k}:backward>{BACKWARD}")
            if n in grads:
                w.temp(weights[n], f"layers.py:70:accumulate>{BACKWARD}")
            else:
                grads[n] = w.alloc(weights[n], f"layers.py:72:backward>{BACKWARD}")
        w.free(flowing, *saved.pop())
    w.free(loss)


def convolutions(w: Writer, hook: Hook) -> None:
    """A residual network with momentum; workspaces of the convolutions; gradients are kept."""
    rng = w.rng
    batch, side, stages, steps = rng.choice([32, 64, 96, 128]), rng.choice([112, 128, 160]), 4, rng.randrange(6, 11)
    blocks = [(64 << k, side >> k) for k in range(stages) for _ in range(rng.choice([1, 2]))]
    for c, _ in blocks:
        for _ in range(3):  # weights, gradients, momentum
            w.alloc(9 * c * c * 4 * 4, f"resnet.py:22:__init__>{MAIN}")
    hook(w, "load", 0)
    for step in range(steps):
        hook(w, "forward", step)
        image = w.alloc(batch * 3 * (2 * side) ** 2 * 4, f"data.py:18:to_device>{MAIN}")
        saved = []
        for c, n in blocks:
            size = batch * c * n * n * 4
            w.temp(min(size // 2, 512 * MIB), f"resnet.py:40:conv>{FORWARD}")
            saved.append([w.alloc(size, f"resnet.py:{k}:block>{FORWARD}") for k in (40, 41, 44)])
        hook(w, "peak", step)
        for (c, n), mine in zip(reversed(blocks), reversed(saved), strict=True):
            size = batch * c * n * n * 4
            w.temp(min(size // 2, 512 * MIB), f"resnet.py:80:conv_backward>{BACKWARD}")
            w.temp(size, f"resnet.py:81:block_backward>{BACKWARD}")
            w.free(*mine)
        w.free(image)
        w.add("step")
        hook(w, "end", step)


def inference(w: Writer, hook: Hook) -> None:
    """Batches of one shape through a network; one layer's activations live at a time."""
    s = Shape.of(w.rng)
    for size in s.weights():
        w.alloc(size, "loader.py:71:load_state_dict>serve.py:12:main")
    hook(w, "load", 0)
    act = s.tokens * s.hidden * s.word
    for step in range(s.steps):
        hook(w, "forward", step)
        x = w.alloc(act, "model.py:44:embed>serve.py:33:answer")
        for _ in range(s.layers):
            mine = [w.alloc(size, f"layers.py:{k}:forward>serve.py:33:answer") for k, size in ((20, 3 * act), (27, act))]
            y = w.alloc(act, "layers.py:33:forward>serve.py:33:answer")
            w.temp(4 * act, "layers.py:36:mlp>serve.py:33:answer")
            w.free(*mine, x)
            x = y
        hook(w, "peak", step)
        w.temp(s.tokens * s.vocab * s.word // 8, "model.py:60:logits>serve.py:33:answer")
        w.free(x)
        w.add("step")
        hook(w, "end", step)


def decoding(w: Writer, hook: Hook) -> None:
    """A language model with a cache of keys and values that is allocated once."""
    s = Shape.of(w.rng)
    for size in s.weights():
        w.alloc(size, "loader.py:71:load_state_dict>serve.py:12:main")
    for _ in range(2 * s.layers):
        w.alloc(s.tokens * s.hidden * s.word * 2, "cache.py:25:allocate>serve.py:15:main")
    hook(w, "load", 0)
    rows = w.rng.choice([8, 32, 128])
    for step in range(2 * s.steps):
        hook(w, "forward", step)
        x = w.alloc(rows * s.hidden * s.word, "model.py:44:embed>serve.py:50:decode")
        for _ in range(s.layers):
            w.temp(rows * s.hidden * s.word * 3, "layers.py:20:attention>serve.py:50:decode")
            w.temp(rows * s.hidden * s.word * 4, "layers.py:36:mlp>serve.py:50:decode")
        hook(w, "peak", step)
        w.temp(rows * s.vocab * 4, "model.py:60:logits>serve.py:50:decode")
        w.free(x)
        w.add("step")
        hook(w, "end", step)


BODIES = (train, train, convolutions, inference, decoding)
