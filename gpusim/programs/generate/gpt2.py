"""GPT-2 as PyTorch runs it eagerly: layer norm with bias, fused QKV, GELU by tanh, dropout, learned positions.

Which tensors each operator makes, and when they die, is as in the recorded `gpt2-small-train` traces.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.programs.generate.tape import AffineSize, RequestTape
from gpusim.programs.generate.transformer import Dimensions, attention, embedding_backward, loss_backward, loss_forward


def parameters(m: Dimensions) -> list[AffineSize]:
    """In the order in which the module lists them."""
    d, h, w = m.width, m.hidden, m.weight
    layer = [w(d), w(d), w(d, 3 * d), w(3 * d), w(d, d), w(d), w(d), w(d), w(d, h), w(h), w(h, d), w(d)]
    return [w(m.vocabulary, d), w(m.context, d), *layer * m.layers, w(d), w(d)]


def buffers(m: Dimensions) -> list[AffineSize]:
    return []


@dataclass
class SavedLayer:
    """What a layer's forward pass keeps for the backward pass."""

    x: int
    norm1: list[int]
    qkv: int
    attended: list[int]
    mask1: int
    residual: int
    norm2: list[int]
    up: int
    gelu: list[int]
    down: int
    mask2: int


def step(t: RequestTape, m: Dimensions, checkpoint: bool) -> list[int]:
    """Forward and backward pass; answers the gradients in the order of the parameters."""
    words = t.new(m.activation)
    index = t.new(m.positions(8))
    place = t.new(m.positions(8))
    t.free(index)
    where = t.new(m.positions(m.width * m.element))
    total = t.new(m.activation)
    x, mask = _dropout(t, m, total)

    layers: list[SavedLayer] = []
    inputs = []
    for _ in range(m.layers):
        inputs.append(x)
        if checkpoint:
            x = _forward_only(t, m, x)
        else:
            layer, mlp, attended = _forward(t, m, x)
            x = t.new(m.activation)
            t.free(attended, mlp)
            layers.append(layer)
    final = _norm(t, m)
    t.free(words, where)
    saved = loss_forward(t, m, final[0])

    head, gradient, late = loss_backward(t, m, saved)
    gradient, *norm_gradients = _norm_backward(t, m, gradient, [x, *final[1:]])
    grads: list[int] = []
    for at in reversed(range(m.layers)):
        if checkpoint:
            layer, mlp, attended = _forward(t, m, inputs[at], again=True)
        else:
            layer = layers[at]
        gradient, found = _backward(t, m, layer, gradient)
        grads = found + grads
    below = t.new(m.activation)
    t.free(gradient, mask)
    summed = t.new(m.positions(m.width * m.element))
    positions = t.new(m.weight(m.context, m.width))
    t.free(summed, place)
    embedding = embedding_backward(t, m, head, below)
    t.free(*late)
    return [embedding, positions, *grads, *norm_gradients]


def _norm(t: RequestTape, m: Dimensions) -> list[int]:
    """Output, mean and inverse deviation."""
    return [t.new(m.activation), t.new(m.statistic), t.new(m.statistic)]


def _dropout(t: RequestTape, m: Dimensions, x: int) -> tuple[int, int]:
    """(output, mask); x dies."""
    made = t.new(m.activation), t.new(m.tokens(m.width, 1))
    t.free(x)
    return made


def _gelu(t: RequestTape, m: Dimensions, keep: bool) -> list[int]:
    """0.5 x (1 + tanh(c (x + 0.044715 x^3))), operator by operator: x / 2, tanh, 1 + tanh, output."""
    half, inner = t.new(m.wide), t.new(m.wide)
    for _ in range(3):  # scaled cube, sum with x, scaled sum
        following = t.new(m.wide)
        t.free(inner)
        inner = following
    tanh = t.new(m.wide)
    t.free(inner)
    one = t.new(m.wide)
    if not keep:
        t.free(tanh)
    return [half, tanh, one, t.new(m.wide)]


def _forward(t: RequestTape, m: Dimensions, x: int, again: bool = False) -> tuple[SavedLayer, int, int]:
    """All but the last addition, with everything kept: (what is kept, output of the MLP, output of attention).

    again  recomputed for the backward pass: it ends as soon as all that was to be kept is there, and both outputs die
    """
    norm1 = _norm(t, m)
    qkv = t.new(m.activation.times(3))
    attended = attention(t, m)
    projected = t.new(m.activation)
    out, mask1 = _dropout(t, m, projected)
    residual = t.new(m.activation)
    norm2 = _norm(t, m)
    up = t.new(m.wide)
    half, tanh, one, act = _gelu(t, m, keep=True)
    down = t.new(m.activation)
    if again:
        mlp, mask2 = t.new(m.activation), t.new(m.tokens(m.width, 1))
        t.free(mlp, down, out)
    else:
        mlp, mask2 = _dropout(t, m, down)
    return SavedLayer(x, norm1, qkv, attended, mask1, residual, norm2, up, [half, tanh, one], act, mask2), mlp, out


def _forward_only(t: RequestTape, m: Dimensions, x: int) -> int:
    """A layer whose backward pass computes it again: only its input stays."""
    norm, *statistics = _norm(t, m)
    t.free(*statistics)
    qkv = t.new(m.activation.times(3))
    attended, *extras = attention(t, m)
    t.free(*reversed(extras))
    projected = t.new(m.activation)
    t.free(attended)
    out, mask = t.new(m.activation), t.new(m.tokens(m.width, 1))
    t.free(mask, projected, qkv)
    residual = t.new(m.activation)
    t.free(norm)
    norm, *statistics = _norm(t, m)
    t.free(*statistics)
    up = t.new(m.wide)
    half, _, one, act = _gelu(t, m, keep=False)
    t.free(half, one, up)
    down = t.new(m.activation)
    t.free(act)
    mlp, mask = t.new(m.activation), t.new(m.tokens(m.width, 1))
    t.free(mask, down)
    x = t.new(m.activation)
    t.free(norm, residual, out, mlp)
    return x


def _norm_backward(t: RequestTape, m: Dimensions, gradient: int, saved: list[int]) -> list[int]:
    """Gradients of input, weight and bias."""
    made = [t.new(m.activation), t.new(m.weight(m.width)), t.new(m.weight(m.width))]
    t.free(gradient, *saved)
    return made


def _linear_backward(
    t: RequestTape, m: Dimensions, gradient: int, saved: int, size: AffineSize, dims: tuple[int, int]
) -> list[int]:
    """Gradients of input (of this size), weight and bias."""
    made = [t.new(size), t.new(m.weight(*dims)), t.new(m.weight(dims[1]))]
    t.free(gradient, saved)
    return made


def _gelu_backward(t: RequestTape, m: Dimensions, gradient: int, layer: SavedLayer) -> int:
    half, tanh, one = layer.gelu
    of_one, of_half = t.new(m.wide), t.new(m.wide)
    t.free(gradient, one, half)
    inner = t.new(m.wide)
    t.free(of_one, tanh)
    scaled = t.new(m.wide)
    t.free(inner)
    cubic, square, tripled, chained = (t.new(m.wide) for _ in range(4))
    t.free(tripled, square, cubic, layer.up)
    total = t.new(m.wide)
    t.free(scaled, chained)
    direct = t.new(m.wide)
    t.free(of_half)
    result = t.new(m.wide)
    t.free(total, direct)
    return result


def _backward(t: RequestTape, m: Dimensions, layer: SavedLayer, gradient: int) -> tuple[int, list[int]]:
    """(gradient of the layer's input, gradients of its parameters)."""
    d, h = m.width, m.hidden
    dropped = t.new(m.activation)
    t.free(layer.mask2)
    act, w4, b4 = _linear_backward(t, m, dropped, layer.down, m.wide, (h, d))
    up = _gelu_backward(t, m, act, layer)
    normed, w3, b3 = _linear_backward(t, m, up, layer.norm2[0], m.activation, (d, h))
    below, w2, b2 = _norm_backward(t, m, normed, [layer.residual, *layer.norm2[1:]])
    residual = t.new(m.activation)
    t.free(gradient, below)
    dropped = t.new(m.activation)
    t.free(layer.mask1)
    out, lse, seed, offset = layer.attended
    attended, w1, b1 = t.new(m.activation), t.new(m.weight(d, d)), t.new(m.weight(d))
    t.free(dropped)
    parts = [t.new(m.activation) for _ in range(3)]
    t.free(attended, layer.qkv, lse, out, seed, offset)
    qkv = t.new(m.activation.times(3))
    t.free(*parts)
    normed, w0, b0 = _linear_backward(t, m, qkv, layer.norm1[0], m.activation, (d, 3 * d))
    below, wn, bn = _norm_backward(t, m, normed, [layer.x, *layer.norm1[1:]])
    gradient = t.new(m.activation)
    t.free(residual, below)
    return gradient, [wn, bn, w0, b0, w1, b1, w2, b2, w3, b3, w4, b4]
