"""The trace of one generation: a prompt, then token after token, each through all parts of the decoder."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from itertools import pairwise

from gpusim.base.errors import GpusimError
from gpusim.machine.transfer_times import STAGED
from gpusim.programs.blockwise.decoder import ATTENTION, EMBEDDING, HEAD, MLP, BlockKernel, Decoder
from gpusim.programs.blockwise.placement import Placement
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import COPY_IN, COPY_OUT, HOST_WORK, NVME_READ, NVME_WRITE, SYNC, Trace

COMPUTE, WEIGHTS, CACHE, OUT, HIDDEN = range(5)  # streams
STAGE = "gpusim::stage"


@dataclass(frozen=True)
class GenerationLoad:
    """What is generated: `batches` batches of `batch` samples, `tokens` tokens after a prompt of `prompt`.

    The first token comes out of the prompt's pass; without `prefill` the prompt is there already, and each token has a pass.
    """

    batch: int
    prompt: int
    tokens: int
    batches: int = 1
    prefill: bool = True

    def __post_init__(self) -> None:
        if min(self.batch, self.prompt, self.tokens, self.batches) < 1:
            raise GpusimError("a generation has at least one sample, one token of prompt and one token")

    @property
    def passes(self) -> list[tuple[str, int, int]]:
        """(phase, new tokens, tokens seen) of each pass through the decoder."""
        first = [("prefill", self.prompt, self.prompt)] if self.prefill else []
        later = self.tokens - len(first)
        return first + [(f"decode{i}", 1, self.prompt + len(first) + i) for i in range(later)]


def generation(decoder: Decoder, placement: Placement, work: GenerationLoad, name: str = "generation") -> Trace:
    """The trace of the whole generation.  Raises GpusimError for more blocks on the CPU than there are."""
    if not 0 <= placement.cpu_blocks <= decoder.layers:
        raise GpusimError(f"{placement.cpu_blocks} of {decoder.layers} blocks are on the CPU")
    return _Generation(decoder, placement, work, name).run()


@dataclass(frozen=True)
class _Part:
    """Consecutive operators whose weights come in together."""

    pieces: tuple[str, ...]
    block: int

    @property
    def attends(self) -> bool:
        return ATTENTION in self.pieces


class _Generation:
    def __init__(self, decoder: Decoder, placement: Placement, work: GenerationLoad, name: str) -> None:
        self.d, self.p, self.w = decoder, placement, work
        self.b = TraceBuilder(name)
        pieces = [(ATTENTION,), (MLP,)] if placement.parts else [(ATTENTION, MLP)]
        self.parts = [_Part((EMBEDDING,), -1)]
        self.parts += [_Part(piece, block) for block in range(decoder.layers) for piece in pieces]
        self.parts += [_Part((HEAD,), decoder.layers)]
        self.resident: list[list[int]] = []
        for part in self.parts:
            on_gpu = 0 if self.on_cpu(part) else self.stored(part) - self.copied(part)
            self.resident.append([self.b.alloc(on_gpu, "param")] if on_gpu else [])
        on_cpu = sum(self.stored(part) for part in self.parts if self.on_cpu(part))
        away = sum(self.copied(part) for part in self.parts if not self.on_cpu(part))
        on_disk = int(away * placement.weights_nvme / placement.away) if away else 0
        self.b.meta |= {"host_bytes": on_cpu + away - on_disk, "nvme_bytes": on_disk}
        most = work.prompt + work.tokens
        self.cache = {
            (block, k): [self.b.alloc(decoder.cached(work.batch, most), "cache")] if placement.cache == "gpu" else []
            for block in range(decoder.layers) for k in range(work.batches) if block >= placement.cpu_blocks
        }  # fmt: skip
        self.brought: dict[int, list[int]] = {}
        self.waiting: dict[tuple[int, int], list[int]] = {}  # what was copied in for a part and a batch

    def on_cpu(self, part: _Part) -> bool:
        """Whether the CPU computes it."""
        if part.pieces[0] == HEAD:
            return self.p.cpu_head
        return part.pieces[0] != EMBEDDING and part.block < self.p.cpu_blocks

    def stored(self, part: _Part) -> int:
        return sum(self.d.stored(piece) for piece in part.pieces)

    def copied(self, part: _Part) -> int:
        """Bytes that come in before each use; embeddings and head stay on the GPU."""
        return 0 if part.block in (-1, self.d.layers) else int(self.stored(part) * self.p.away)

    def run(self) -> Trace:
        for phase, tokens, context in self.w.passes:
            self.b.begin_phase(phase)
            self.hidden = [self.b.alloc(self.w.batch * tokens * self.d.width * self.d.element, "act")
                           for _ in range(self.w.batches)]  # fmt: skip
            units = [(j, k) for j in range(len(self.parts)) for k in range(self.w.batches)]
            for unit, after in pairwise(units):
                self.visit(unit, after, tokens, context)
            self.visit(units[-1], None, tokens, context)
            self.b.free_many(self.hidden)
        return self.b.finish()

    def visit(self, unit: tuple[int, int], after: tuple[int, int] | None, tokens: int, context: int) -> None:
        """One part on one batch, and the copies that belong beside it."""
        j, k = unit
        part = self.parts[j]
        if k == 0:
            if j not in self.brought:
                self.bring(j)
            if self.p.ahead and j + 1 < len(self.parts):
                self.bring(j + 1)
        if unit not in self.waiting:
            self.load(unit, tokens, context)
        if self.p.ahead and after is not None:
            self.load(after, tokens, context)
        if self.on_cpu(part):
            self.work_on_cpu(part, k, tokens, context)
        else:
            self.compute(part, j, k, tokens, context)
        self.store(part, k, tokens)
        self.b.free_many(self.waiting.pop(unit))
        if k == self.w.batches - 1:
            self.b.free_many(self.brought.pop(j))
        if self.p.barrier:
            self.b.event(SYNC)

    def bring(self, j: int) -> None:
        """Weights that are not on the GPU come in, from disk to the host first."""
        part = self.parts[j]
        size = 0 if self.on_cpu(part) else self.copied(part)
        if not size:
            self.brought[j] = []
            return
        (buffer,) = self.brought[j] = [self.b.alloc(size, "param")]
        if from_disk := int(size * self.p.weights_nvme / self.p.away):
            self.b.op("gpusim::nvme_read", (), (buffer,), read_bytes=from_disk, stream=WEIGHTS, activity=NVME_READ)
        self.copy_in(buffer, size, WEIGHTS, self.p.memory)

    def copy_in(self, buffer: int, size: int, stream: int, memory: str) -> None:
        """To the GPU.  A relay's copy and all of a pageable one hold up what the program issues next."""
        if memory == "relay":
            self.b.op(STAGE, (), (), read_bytes=size, written_bytes=size, stream=COMPUTE, activity=HOST_WORK)
        elif memory == "pageable":
            self.b.op(STAGED[0], (), (), read_bytes=size, stream=COMPUTE, activity=HOST_WORK)
            stream = COMPUTE
        self.b.op("gpusim::copy_in", (), (buffer,), read_bytes=size, stream=stream, activity=COPY_IN)

    def load(self, unit: tuple[int, int], tokens: int, context: int) -> None:
        """Cache and activations that a part needs on one batch."""
        part, found = self.parts[unit[0]], []
        if part.attends and self.p.cache != "gpu" and tokens == 1 and not self.on_cpu(part):
            size = self.d.cached(self.w.batch, context - 1)
            disk = self.p.cache == "nvme"
            if self.p.attention == "gpu":
                found.append(self.b.alloc(size, "cache"))
            if disk:
                self.b.op("gpusim::nvme_read", (), found, read_bytes=size, stream=CACHE, activity=NVME_READ)
            if self.p.attention == "gpu":
                self.copy_in(found[0], size, CACHE, self.p.cache_memory)
        if self.p.hidden == "host" and part.block >= 0:
            found.append(self.b.alloc(self.activation(tokens), "act"))
            self.copy_in(found[-1], self.activation(tokens), HIDDEN, "pinned")
        self.waiting[unit] = found

    def store(self, part: _Part, k: int, tokens: int) -> None:
        """New keys and values, and activations, leave for their places."""
        if part.attends and self.p.cache != "gpu" and not self.on_cpu(part):
            size = self.d.cached(self.w.batch, tokens)
            self.copy_out(size, (self.hidden[k],))
            if self.p.cache == "nvme":
                self.b.op("gpusim::nvme_write", (), (), read_bytes=size, stream=OUT, activity=NVME_WRITE)
        if self.p.hidden == "host" and part.block < self.d.layers:
            self.copy_out(self.activation(tokens), (self.hidden[k],))

    def copy_out(self, size: int, reads: tuple[int, ...], stream: int = OUT) -> None:
        self.b.op("gpusim::copy_out", reads, (), read_bytes=size, stream=stream, activity=COPY_OUT)

    def activation(self, tokens: int) -> int:
        return self.w.batch * tokens * self.d.width * self.d.element

    def compute(self, part: _Part, j: int, k: int, tokens: int, context: int) -> None:
        held = (*self.resident[j], *self.brought[j], *self.waiting[j, k], self.hidden[k])
        if self.d.packed and self.p.unpacks and part.block in range(self.d.layers):  # each batch anew, as FlexGen does
            for piece in part.pieces:
                counts = (n * m for n, m in self.d.matrices(piece))
                self.kernels((self.d.unpack(n, self.d.weight_bits, self.p.unpack_moves) for n in counts), held, k)
        own = bool(self.d.packed and not self.p.unpacks)
        rows = self.w.batch * tokens
        for piece in part.pieces:
            if piece == EMBEDDING:
                moved = rows * self.d.width * self.d.element
                self.kernels([BlockKernel("aten.embedding", 0, moved, moved)], held, k)
            elif piece == MLP:
                self.kernels(self.d.mlp(self.w.batch, tokens, own), held, k)
            elif piece == HEAD:
                self.kernels(self.d.head(self.w.batch, own), held, k)
            else:
                self.attend(part, held, k, tokens, context, own)

    def attend(self, part: _Part, held: tuple[int, ...], k: int, tokens: int, context: int, own: bool) -> None:
        cache = self.cache.get((part.block, k), [])
        if tokens > 1 or self.p.attention == "gpu":
            if tokens == 1:
                self.kernels(self.ready(context), (*held, *cache), k)
            self.kernels(self.d.attention(self.w.batch, tokens, context, fused_bits=own), (*held, *cache), k)
            return
        *before, out, add = self.d.attention(self.w.batch, tokens, context, scores=False, fused_bits=own)
        self.kernels(before, held, k)
        self.copy_out(3 * self.activation(tokens), (self.hidden[k],), COMPUTE)
        size = int(self.d.cached(self.w.batch, context) * self.p.attention_passes)
        self.b.op("gpusim::cpu_attention", (), (), read_bytes=size, activity=HOST_WORK)
        self.b.op("gpusim::copy_in", (), (self.hidden[k],), read_bytes=self.activation(tokens), activity=COPY_IN)
        self.kernels((out, add), held, k)

    def ready(self, context: int) -> Iterator[BlockKernel]:
        """What happens to the cache on the GPU before the scores of a new token: unpacked, copied in another order."""
        elements = 2 * self.w.batch * context * self.d.kv_width
        if self.d.cache_bits < 8 * self.d.element:
            yield self.d.unpack(elements, self.d.cache_bits, self.p.unpack_moves)
        if self.p.cache_moves:
            yield BlockKernel("aten.clone", 0, int(elements * self.p.cache_moves / 2), int(elements * self.p.cache_moves / 2))

    def kernels(self, kernels: Iterable[BlockKernel], held: tuple[int, ...], k: int) -> None:
        for kernel in kernels:
            self.b.op(
                kernel.name, held, (self.hidden[k],), read_bytes=kernel.read, written_bytes=kernel.written, flops=kernel.flops,
                dtype="float16" if self.d.element == 2 else "float32",
            )  # fmt: skip

    def work_on_cpu(self, part: _Part, k: int, tokens: int, context: int) -> None:
        """The CPU reads the part's weights and cache; activations cross the link where the GPU's blocks begin or end."""
        size = self.stored(part) if part.pieces[0] != HEAD else int(self.d.width * self.d.vocabulary * self.d.weight_bits / 8)
        if part.attends:
            size += self.d.cached(self.w.batch, context)
        if part.pieces[0] == HEAD or (part.block == 0 and part.attends):
            self.copy_out(self.activation(tokens), (self.hidden[k],), COMPUTE)
        self.b.op("gpusim::cpu_block", (), (self.hidden[k],), read_bytes=size, activity=HOST_WORK)
        if part.block == self.p.cpu_blocks - 1 and MLP in part.pieces:
            self.b.op("gpusim::copy_in", (), (self.hidden[k],), read_bytes=self.activation(tokens), activity=COPY_IN)
