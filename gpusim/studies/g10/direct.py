"""Whole tensors to and from an SSD that the GPU reaches directly: FlashNeuron, and G10's plans without unified memory.

One iteration, from an empty start.  An SSD channel each way, for G10-Host another pair to the host over the rest of PCIe; each
serves one tensor after the other.  A kernel starts when its tensors are there; those are placed in one piece, FlashNeuron's
kept ones from the left of the arena and what it offloads from the right.

Source: J. Bae et al., "FlashNeuron: SSD-enabled large-batch training of very deep neural networks", FAST 2021; as the G10 study
simulates it, and its own plans on the same machine (platformxlab/G10, src/analysis.cc).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from gpusim.studies.g10.channels import ChannelClock, DoesNotFit, Run
from gpusim.studies.g10.conditions import GIB, Conditions
from gpusim.studies.g10.extent_tables import DEVICE, SSD
from gpusim.studies.g10.kernel_program import KernelProgram
from gpusim.studies.g10.plans import Hint, sort, stretches


def flashneuron(program: KernelProgram, conditions: Conditions) -> Run:
    """FlashNeuron.  Raises DoesNotFit."""
    offloads = _offloads(program, conditions)
    chosen = {tensor for _, tensor in offloads}
    m = ChannelClock(program, conditions, conditions.device_pages)
    short = program.unread & ~program.everlasting
    for t in range(program.tensors):
        if program.everlasting[t] and not m.from_left(t):
            raise DoesNotFit
    if short.any():  # one block for all workspaces
        m.from_left(int((program.size * short).argmax()))
    working = max(int(m.pages[[t for t in walk if not program.everlasting[t]]].sum()) for walk in program.walk)
    ms = program.cycles(conditions.hertz)[0] / conditions.hertz * 1000
    following = deque(offloads)
    for k, walk in enumerate(program.walk):
        if k < program.loss:
            while following and following[0][0] == k:
                m.offload(following.popleft()[1], SSD)
        else:
            m.until(m.written)
        tensors = [int(t) for t in walk if not program.everlasting[t] and not program.unread[t]]
        for t in tensors:
            if t not in m.at:
                m.until(m.from_right if t in chosen else m.from_left, t)
                if t in chosen and program.begin[t] != k:
                    m.fetch(t)
            m.until(m.settled, t)
        m.run(float(ms[k]))
        for t in tensors:
            if program.end[t] == k + 1:
                m.drop(t)
        if k >= program.loss:
            _fetch_ahead(m, k, chosen, m.arena.largest - working)
    return m.result()


def _fetch_ahead(m: ChannelClock, k: int, chosen: set[int], room: int) -> None:
    """Bring back what the next kernels need, in their order, as long as the largest hole then keeps room for any kernel."""
    for walk in m.program.walk[k + 1 :]:
        for t in map(int, walk):
            if t in chosen and t not in m.at:
                if room <= m.pages[t]:
                    return
                m.from_right(t)
                m.fetch(t)
                room -= int(m.pages[t])


def _offloads(program: KernelProgram, conditions: Conditions) -> list[tuple[int, int]]:
    """(kernel, tensor) in order: activations of the forward pass that the backward pass reads, until the rest fits."""
    page, loss = conditions.page, program.loss
    everlasting = int(program.size[program.everlasting].sum())
    working = max(int(program.size[walk].sum()) // page for walk in program.walk)
    line = int(int(conditions.device_gib * GIB) * conditions.line) - everlasting - working * page
    if line <= 0:
        raise DoesNotFit
    candidates: dict[int, None] = {}
    for walk in program.walk[:loss]:
        for t in map(int, walk):
            if not program.everlasting[t] and not program.unread[t] and program.end[t] > loss:
                candidates.setdefault(t)
    idle = stretches(program)
    total = sum(int(program.size[t]) for t in candidates)
    chosen = []
    for t in candidates:
        if total < line:
            break
        begins = idle.begin[idle.tensor == t]
        if len(begins):
            chosen.append((int(begins[begins <= loss].max()), t))
            total -= int(program.size[t])
    if total > line:
        raise DoesNotFit
    return [chosen[i] for i in sort([k for k, _ in chosen])]


def direct(program: KernelProgram, conditions: Conditions, hints: Sequence[Hint]) -> Run:
    """G10's plan on whole tensors.  The arena is four times the device: only the plan keeps it within the device."""
    chosen = {tensor for _, tensor, to in hints if to != DEVICE}
    m = ChannelClock(program, conditions, 4 * conditions.device_pages)
    for t in range(program.tensors):
        if program.everlasting[t]:
            (m.from_right if t in chosen else m.from_left)(t)
    ms = program.cycles(conditions.hertz)[0] / conditions.hertz * 1000
    following = deque(hints)
    for k, walk in enumerate(program.walk):
        while following and following[0][0] == k:
            _, t, to = following.popleft()
            if to != DEVICE:
                m.offload(t, to)
            elif not (t in m.at and program.everlasting[t]):
                m.waiting.append(t)
                m.admit()
        for t in map(int, walk):
            if t in m.at:
                m.until(m.settled, t)
            elif t in m.waiting:
                m.admit()
                m.until(m.here, t)
            else:
                m.until(m.from_right if t in chosen else m.from_left, t)
                if t in chosen and program.begin[t] != k and not program.everlasting[t]:
                    m.fetch(t)
                    m.until(m.settled, t)
        m.run(float(ms[k]))
        for t in map(int, walk):
            if not program.everlasting[t] and (program.unread[t] or program.end[t] == k + 1):
                m.drop(t)
        m.admit()
    return m.result()
