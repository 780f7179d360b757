"""Llama as PyTorch runs it eagerly: RMS norm in float32, rotary positions, grouped KV heads, gated SiLU, no bias.

Which tensors each operator makes, and when they die, is as in the recorded `llama-1b-train` and `llama-1b-decode` traces.
"""

from __future__ import annotations

from dataclasses import dataclass

from gpusim.programs.generate.tape import AffineSize, RequestTape
from gpusim.programs.generate.transformer import Dimensions, attention, embedding_backward, loss_backward, loss_forward


def parameters(m: Dimensions) -> list[AffineSize]:
    """In the order in which the module lists them."""
    d, h, kv, w = m.width, m.hidden, m.kv_width, m.weight
    layer = [w(d, d), w(d, kv), w(d, kv), w(d, d), w(d, h), w(d, h), w(h, d), w(d), w(d)]
    return [w(m.vocabulary, d), *layer * m.layers, w(d)]


def buffers(m: Dimensions) -> list[AffineSize]:
    """The rotary embedding's frequencies, and a copy of them as they were at first."""
    return [AffineSize(m.head // 2 * 4)] * 2


@dataclass
class SavedLayer:
    """What a layer's forward pass keeps for the backward pass."""

    norm1: list[int]
    normed1: int
    query: int
    key: int
    value: int
    attended: list[int]
    norm2: list[int]
    normed2: int
    gate: int
    act: int
    up: int
    product: int


def step(t: RequestTape, m: Dimensions, checkpoint: bool) -> list[int]:
    """Forward and backward pass; answers the gradients in the order of the parameters."""
    words, place, rotary = embed(t, m)
    x = t.share(words)
    layers: list[SavedLayer] = []
    inputs = []
    for _ in range(m.layers):
        if checkpoint:
            inputs.append(t.share(x))
            x, cache = forward_only(t, m, x)
            t.free(*cache)
        else:
            layer, residual, down = _forward(t, m, x)
            following = t.new(m.activation)
            t.free(down, residual, x)
            x = following
            layers.append(layer)
    norm, out = _norm(t, m, x)
    t.free(x, place, words)
    saved = loss_forward(t, m, out)

    head, gradient, late = loss_backward(t, m, saved)
    gradient, norm_gradient = _norm_backward(t, m, gradient, norm)
    grads: list[int] = []
    for at in reversed(range(m.layers)):
        if checkpoint:
            layer, residual, down = _forward(t, m, inputs[at])
            t.free(down, residual, inputs[at])
        else:
            layer = layers[at]
        gradient, found = _backward(t, m, layer, gradient, rotary if at == 0 else ())
        grads = found + grads
    embedding = embedding_backward(t, m, head, gradient)
    t.free(*late)
    return [embedding, *grads, norm_gradient]


def embed(t: RequestTape, m: Dimensions) -> tuple[int, int, tuple[int, int]]:
    """(embedded tokens, their positions, (cosine, sine) of the rotary embedding)."""
    words = t.new(m.activation)
    index = t.new(m.positions(8))
    place = t.new(m.positions(8))
    t.free(index)
    exact = t.new(m.positions(4))
    frequencies = t.new(m.positions(m.head // 2 * 4))
    t.free(exact)
    both = t.new(m.positions(m.head * 4))
    scaled = []
    for _ in range(2):
        wave = t.new(m.positions(m.head * 4))
        scaled.append(t.new(m.positions(m.head * 4)))
        t.free(wave)
    cosine, sine = (m.cast(t, s, m.positions(m.head * m.element)) for s in scaled)
    t.free(frequencies, both, *scaled)
    return words, place, (cosine, sine)


def _norm(t: RequestTape, m: Dimensions, x: int, keep: bool = True) -> tuple[list[int], int]:
    """([float32 input, inverse norm, normalised], output)."""
    exact = m.cast(t, x, m.exact)
    square = t.new(m.exact)
    mean = t.new(m.statistic)
    t.free(square)
    shifted = t.new(m.statistic)
    inverse = t.new(m.statistic)
    t.free(shifted)
    scaled = t.new(m.exact)
    if not keep:
        t.free(inverse, exact)
    normed = m.cast(t, scaled, m.activation)
    out = t.new(m.activation)
    if not keep:
        t.free(normed)
    t.free(scaled, mean)
    return [exact, inverse, normed], out


def _rotate(t: RequestTape, x: AffineSize) -> int:
    """x cos + rotated(x) sin."""
    half = AffineSize(x.fixed // 2, x.per // 2)
    direct = t.new(x)
    negated = t.new(half)
    turned = t.new(x)
    t.free(negated)
    crossed = t.new(x)
    t.free(turned)
    result = t.new(x)
    t.free(direct, crossed)
    return result


def project(t: RequestTape, m: Dimensions) -> tuple[int, int, int]:
    """Query and key with their positions, and the value."""
    kv = m.tokens(m.kv_width)
    query, key, value = t.new(m.activation), t.new(kv), t.new(kv)
    turned = _rotate(t, m.activation), _rotate(t, kv)
    t.free(query, key)
    return *turned, value


def _forward(t: RequestTape, m: Dimensions, x: int) -> tuple[SavedLayer, int, int]:
    """All but the last addition, with everything kept: (what is kept, output of attention + x, output of the MLP)."""
    norm1, normed1 = _norm(t, m, x)
    query, key, value = project(t, m)
    attended = attention(t, m)
    projected = t.new(m.activation)
    residual = t.new(m.activation)
    t.free(projected)
    norm2, normed2 = _norm(t, m, residual)
    gate, act, up, product = (t.new(m.wide) for _ in range(4))
    down = t.new(m.activation)
    return SavedLayer(norm1, normed1, query, key, value, attended, norm2, normed2, gate, act, up, product), residual, down


def forward_only(t: RequestTape, m: Dimensions, x: int) -> tuple[int, list[int]]:
    """A layer of which nothing is kept: (output, [key, value])."""
    normed, query, key, value = attend(t, m, x)
    return finish(t, m, x, normed, query), [key, value]


def attend(t: RequestTape, m: Dimensions, x: int) -> tuple[int, int, int, int]:
    """The first half, up to attention: (normalised input, query, key, value)."""
    _, normed = _norm(t, m, x, keep=False)
    return normed, *project(t, m)


def finish(t: RequestTape, m: Dimensions, x: int, normed: int, query: int) -> int:
    """The second half, from attention: the output; all that is given dies."""
    attended, *extras = attention(t, m)
    t.free(*reversed(extras))
    projected = t.new(m.activation)
    t.free(attended, query, normed)
    residual = t.new(m.activation)
    t.free(projected)
    _, normed = _norm(t, m, residual, keep=False)
    gate = t.new(m.wide)
    act = t.new(m.wide)
    t.free(gate)
    up = t.new(m.wide)
    product = t.new(m.wide)
    t.free(act, up)
    down = t.new(m.activation)
    t.free(product, normed)
    out = t.new(m.activation)
    t.free(down, residual, x)
    return out


def last(t: RequestTape, m: Dimensions, x: int, place: int, words: int, rotary: tuple[int, int]) -> int:
    """The final norm's output; what the layers shared dies."""
    _, out = _norm(t, m, x, keep=False)
    t.free(x, place, words, *reversed(rotary))
    return out


def _norm_backward(t: RequestTape, m: Dimensions, gradient: int, saved: list[int]) -> tuple[int, int]:
    """Gradients of input and weight."""
    exact, inverse, normed = saved
    below, product = t.new(m.activation), t.new(m.activation)
    weight = t.new(m.weight(m.width))
    t.free(product, gradient, normed)
    wide = m.cast(t, below, m.exact)
    t.free(below)
    crossed, direct = t.new(m.exact), t.new(m.exact)
    summed = t.new(m.statistic)
    t.free(crossed, wide)
    cubed, halved, scaled = (t.new(m.statistic) for _ in range(3))
    t.free(halved, cubed, summed, inverse)
    spread = t.new(m.exact)
    t.free(scaled)
    power, doubled, chained = (t.new(m.exact) for _ in range(3))
    t.free(doubled, power, spread, exact)
    total = t.new(m.exact)
    t.free(direct, chained)
    result = m.cast(t, total, m.activation)
    t.free(total)
    return result, weight


def _rotate_backward(t: RequestTape, x: AffineSize, gradient: int, rotary: tuple[int, ...]) -> int:
    """rotary  (cosine, sine) when no later operator needs them"""
    half = AffineSize(x.fixed // 2, x.per // 2)
    crossed = t.new(x)
    t.free(*rotary[1:])
    negated = t.new(half)
    parts = [t.new(x)]
    t.free(negated)
    parts.append(t.new(x))
    t.free(crossed)
    turned = t.new(x)
    t.free(*parts)
    direct = t.new(x)
    t.free(gradient, *rotary[:1])
    result = t.new(x)
    t.free(turned, direct)
    return result


def _add(t: RequestTape, m: Dimensions, one: int, other: int) -> int:
    total = t.new(m.activation)
    t.free(one, other)
    return total


def _backward(
    t: RequestTape, m: Dimensions, layer: SavedLayer, gradient: int, rotary: tuple[int, ...]
) -> tuple[int, list[int]]:
    """(gradient of the layer's input, gradients of its parameters)."""
    d, h, kv = m.width, m.hidden, m.tokens(m.kv_width)
    w_down, product = t.new(m.weight(h, d)), t.new(m.wide)
    t.free(layer.product)
    of_up, of_act = t.new(m.wide), t.new(m.wide)
    t.free(product, layer.up, layer.act)
    w_up, up = t.new(m.weight(d, h)), t.new(m.activation)
    t.free(of_up)
    of_gate = t.new(m.wide)
    t.free(of_act, layer.gate)
    w_gate, gate = t.new(m.weight(d, h)), t.new(m.activation)
    t.free(of_gate, layer.normed2)
    below, w_norm2 = _norm_backward(t, m, _add(t, m, up, gate), layer.norm2)
    gradient = _add(t, m, gradient, below)

    w_out, attended = t.new(m.weight(d, d)), t.new(m.activation)
    query, key, value = t.new(m.activation), t.new(kv), t.new(kv)
    out, lse, seed, offset = layer.attended
    t.free(attended, layer.key, layer.query, layer.value, lse, out, seed, offset)
    key = _rotate_backward(t, kv, key, ())
    query = _rotate_backward(t, m.activation, query, rotary)
    w_value, below = t.new(m.weight(d, m.kv_width)), t.new(m.activation)
    t.free(value)
    weights = []
    for size, turned in ((kv, key), (m.activation, query)):
        plain = t.new(size)  # contiguous
        t.free(turned)
        weights.append(t.new(m.weight(d, m.kv_width if size is kv else d)))
        part = t.new(m.activation)
        t.free(plain)
        if size is not kv:
            t.free(layer.normed1)
        below = _add(t, m, below, part)
    below, w_norm1 = _norm_backward(t, m, below, layer.norm1)
    gradient = _add(t, m, gradient, below)
    return gradient, [weights[1], weights[0], w_value, w_out, w_gate, w_up, w_down, w_norm1, w_norm2]
