"""Makes the dumps beside it with JAX on the CPU: `python make.py` (jax 0.10.2); needs nothing of gpusim.

Two training steps: an MLP with plain gradient descent, and transformer blocks under `scan` with momentum, whose parameters
and momenta are donated.  Tables of source files are left out of the program's text.
"""

import gzip
import os
import re
import sys
import tempfile
from pathlib import Path

FOLDER = Path(tempfile.mkdtemp())
os.environ["XLA_FLAGS"] = f"--xla_dump_to={FOLDER} --xla_dump_hlo_module_re=jit_(mlp|block)_step"

import jax  # noqa: E402
import jax.numpy as jnp  # noqa: E402

WIDTH, HEADS, LENGTH, BATCH, LAYERS = 64, 4, 32, 2, 3


def mlp_step(params, x, y):
    def loss(params):
        out = x
        for weight, bias in params:
            out = jnp.tanh(out @ weight + bias)
        return jnp.mean((out - y) ** 2)

    value, grads = jax.value_and_grad(loss)(params)
    return jax.tree.map(lambda p, g: p - 0.1 * g, params, grads), value


def norm(x, gain):
    return x * jax.lax.rsqrt(jnp.mean(x * x, -1, keepdims=True) + 1e-6) * gain


def block(x, p):
    def heads(t):
        return t.reshape(BATCH, LENGTH, HEADS, WIDTH // HEADS).transpose(0, 2, 1, 3)

    q, k, v = (heads(t) for t in jnp.split(norm(x, p["gain"]) @ p["qkv"], 3, -1))
    weights = jax.nn.softmax(q @ k.swapaxes(-1, -2) / (WIDTH // HEADS) ** 0.5)
    x = x + (weights @ v).transpose(0, 2, 1, 3).reshape(BATCH, LENGTH, WIDTH) @ p["out"]
    return x + jax.nn.gelu(norm(x, p["gain"]) @ p["up"]) @ p["down"], None


def block_step(params, momenta, x):
    def loss(params):
        out, _ = jax.lax.scan(block, x, params)
        return jnp.mean(out * out)

    value, grads = jax.value_and_grad(loss)(params)
    momenta = jax.tree.map(lambda m, g: 0.9 * m + g, momenta, grads)
    return jax.tree.map(lambda p, m: p - 0.1 * m, params, momenta), momenta, value


def keep(name: str, pack: bool) -> None:
    for file in sorted(FOLDER.glob(f"*.jit_{name}_step.cpu_after_optimizations*.txt")):
        suffix = file.name.split("cpu_after_optimizations")[1]
        if suffix in (".txt", "-buffer-assignment.txt", "-buffer-assignment-values.txt", "-live-range.txt"):
            text = re.sub(r"(?s)\n\nFileNames\n.*?(?=\n\n%)", "\n", file.read_text())
            target = Path(__file__).with_name(name + suffix)
            if pack:
                target.with_name(target.name + ".gz").write_bytes(gzip.compress(text.encode(), 9, mtime=0))
            else:
                target.write_text(text)


if __name__ == "__main__":
    shape = jax.ShapeDtypeStruct
    layer = (shape((256, 256), jnp.float32), shape((256,), jnp.float32))
    x = shape((64, 256), jnp.float32)
    jax.jit(mlp_step).lower([layer] * 3, x, x).compile()
    w = WIDTH
    sizes = {"qkv": (w, 3 * w), "out": (w, w), "up": (w, 4 * w), "down": (4 * w, w), "gain": (w,)}
    params = {name: shape((LAYERS, *size), jnp.float32) for name, size in sizes.items()}
    jax.jit(block_step, donate_argnums=(0, 1)).lower(params, params, shape((BATCH, LENGTH, WIDTH), jnp.float32)).compile()
    keep("mlp", pack=False)
    keep("block", pack=True)
    print("made with jax", jax.__version__, "on", sys.platform)
