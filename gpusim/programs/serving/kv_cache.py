"""A server of LLM requests with a paged KV cache and continuous batching, as a trace: its tensors are the cache's blocks.

A stated model, not a recording.  Requests start in the order of arrival as soon as one of `batch` places (and, where
limited, tokens) is free; prompts go before decoding, each as one operator `prefill`, which makes the first token.  Then all
sequences under way decode together; an operator `decode` stands for `stride` iterations.  Both read the weights and the
blocks of their sequences.  A prompt's leading blocks that are in the cache are read, not made; the last token of a prompt is
always computed.  A hashed prompt's blocks are never written again: its output begins in a block of its own.
No time passes between operators.
"""

from __future__ import annotations

from array import array
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from gpusim.base.errors import TraceError
from gpusim.programs.serving.kv_service import Setup, clock_of
from gpusim.trace.build import TraceBuilder
from gpusim.trace.trace import Trace


@dataclass
class ServerRequests:
    """In the order of arrival; times in ns since the first."""

    hash_tokens: int  # 0: no hashes
    arrival: Any = field(default_factory=lambda: array("q"))
    prompt: Any = field(default_factory=lambda: array("q"))
    output: Any = field(default_factory=lambda: array("q"))
    hashes: list[Any] = field(default_factory=list)
    line: Any = field(default_factory=lambda: array("q"))
    """Where each stands in its file."""
    adapter: Any = field(default_factory=lambda: array("q"))
    """Which LoRA adapter each wants, counted from 1 in the order in which they are first named; 0: none."""

    def every(self, n: int) -> ServerRequests:
        """The first of each n."""
        columns = (self.arrival, self.prompt, self.output, self.hashes, self.line, self.adapter)
        return ServerRequests(self.hash_tokens, *(column[::n] for column in columns))


@dataclass
class _Sequence:
    blocks: Any  # tensors, of prompt and output
    held: int  # how many of them, from the first, belong to the prefix cache
    request: int
    context: int  # tokens in its blocks
    left: int  # tokens to make
    room: int  # tokens that the last block still takes


@dataclass
class _Prefix:
    """The blocks of one hash."""

    tensors: Any
    users: int = 0
    idle_since: int = -1


class _Server:
    def __init__(self, name: str, path: str, requests: ServerRequests, setup: Setup) -> None:
        self.build = TraceBuilder(name, path)
        self.requests, self.setup, self.clock = requests, setup, clock_of(setup, path)
        self.block_bytes = setup.block * self.clock.token
        self.weights = self.build.alloc(self.clock.weights, "param")
        self.prefixes: dict[int, _Prefix] = {}
        self.to_come: dict[int, int] = {}  # hash -> requests that have not started
        for chain in requests.hashes:
            for key in chain:
                self.to_come[key] = self.to_come.get(key, 0) + 1
        self.idle: deque[tuple[int, int]] = deque()  # (since, hash)
        self.running: list[_Sequence] = []
        self.now = self.held_tokens = self.reused = self.computed = self.longest_wait = 0

    def run(self) -> None:
        arrival = self.requests.arrival
        i, n = 0, len(arrival)
        while i < n or self.running:
            if not self.running:
                self.now = max(self.now, arrival[i])
            while i < n and arrival[i] <= self.now and self.admits(i):
                self.longest_wait = max(self.longest_wait, self.now - arrival[i])
                self.start(i)
                i += 1
            if self.running:
                self.decode()

    def admits(self, i: int) -> bool:
        wanted = self.held_tokens + self.requests.prompt[i] + self.requests.output[i]
        fits = not self.setup.tokens or not self.running or wanted <= self.setup.tokens
        return len(self.running) < self.setup.batch and fits

    def start(self, i: int) -> None:
        """The prompt of request i."""
        self.expire()
        prompt, output = self.requests.prompt[i], self.requests.output[i]
        if self.requests.hashes:
            found, known, blocks = self.prefix(i)
            held, room = len(blocks), 0
        else:
            found, known, blocks = 0, 0, array("q", self.make(-(-prompt // self.setup.block)))
            held, room = 0, -prompt % self.setup.block
        cached = min(found, prompt - 1)
        new = prompt - cached
        duration, flops = self.clock.prefill(new, cached)
        self.build.op(
            "prefill", [self.weights, *blocks[:known]], blocks[known:],
            read_bytes=self.clock.weights + cached * self.clock.token, written_bytes=new * self.clock.token,
            flops=flops, dtype=self.setup.dtype, duration=duration, time=self.now,
        )  # fmt: skip
        self.now += duration
        self.reused += cached
        self.computed += new
        self.held_tokens += prompt + output
        sequence = _Sequence(blocks, held, i, prompt, output - 1, room)
        if sequence.left:
            self.running.append(sequence)
        else:
            self.finish(sequence)

    def make(self, count: int) -> range:
        return self.build.alloc_many(count, self.block_bytes, "cache")

    def prefix(self, i: int) -> tuple[int, int, Any]:
        """(tokens of the prompt found in the cache, leading blocks that hold them, all its blocks)."""
        blocks, found, known = array("q"), 0, 0
        left = self.requests.prompt[i]
        for key in self.requests.hashes[i]:
            tokens = min(left, self.requests.hash_tokens)
            left -= tokens
            self.to_come[key] -= 1
            entry = self.prefixes.get(key)
            if entry is None:
                entry = self.prefixes[key] = _Prefix(self.make(-(-tokens // self.setup.block)))
            elif known == len(blocks):
                found, known = found + tokens, known + len(entry.tensors)
            entry.users += 1
            blocks.extend(entry.tensors)
        return found, known, blocks

    def decode(self) -> None:
        """The next iterations of all sequences under way."""
        self.expire()
        block, token, running = self.setup.block, self.clock.token, self.running
        made = np.minimum([s.left for s in running], self.setup.stride)
        context = np.array([s.context for s in running])
        duration, flops = self.clock.decode(made, context)
        room = np.array([s.room for s in running])
        fresh = -(-np.maximum(made - room, 0) // block)  # blocks that each needs
        new, end = self.make(int(fresh.sum())), 0
        reads, writes = array("q", [self.weights]), array("q", new)
        for s, count, blocks in zip(running, made.tolist(), fresh.tolist(), strict=True):
            reads.extend(s.blocks)
            if s.room:
                writes.append(s.blocks[-1])
            if blocks:
                s.blocks.extend(new[end : end + blocks])
                end += blocks
            s.room = (s.room - count) % block
            s.context += count
            s.left -= count
        total = int(made.sum())
        cache_read = int((made * context + made * (made - 1) // 2).sum())
        self.build.op(
            "decode", dict.fromkeys(reads) if self.prefixes else reads, writes,
            read_bytes=int(made.max()) * self.clock.weights + cache_read * token,
            written_bytes=total * token, flops=flops, dtype=self.setup.dtype, duration=duration, time=self.now,
        )  # fmt: skip
        self.now += duration
        for s in running:
            if not s.left:
                self.finish(s)
        self.running = [s for s in running if s.left]

    def finish(self, s: _Sequence) -> None:
        self.held_tokens -= self.requests.prompt[s.request] + self.requests.output[s.request]
        self.build.free_many(s.blocks[s.held :])
        if not self.requests.hashes:
            return
        for key in self.requests.hashes[s.request]:
            entry = self.prefixes[key]
            entry.users -= 1
            if entry.users:
                continue
            if self.setup.retain >= 0:
                entry.idle_since = self.now
                self.idle.append((self.now, key))
            elif not self.to_come[key]:
                self.build.free_many(self.prefixes.pop(key).tensors)

    def expire(self) -> None:
        """Drops prefixes that nothing has used for `retain` seconds."""
        while self.idle and self.idle[0][0] + self.setup.retain * 1e9 <= self.now:
            since, key = self.idle.popleft()
            entry = self.prefixes.get(key)
            if entry is not None and not entry.users and entry.idle_since == since:
                self.build.free_many(self.prefixes.pop(key).tensors)


def serve(name: str, path: str, requests: ServerRequests, setup: Setup) -> Trace:
    """The trace of serving all requests.  Raises TraceError."""
    if not len(requests.arrival):
        raise TraceError("there are no requests in this file", path)
    server = _Server(name, path, requests, setup)
    server.run()
    clock, build, hashed = server.clock, server.build, bool(requests.hashes)
    last = requests.arrival[-1]
    slow = server.now > 1.5 * last + 60e9
    prompt, output = sum(requests.prompt), sum(requests.output)
    service = (
        f"{clock.compute / 1e12:.0f} Tflop/s and {clock.memory / 1e9:.0f} GB/s, the kernel times of {setup.profile}"
        + (f"; prompts {setup.prefill:g} tokens/s" if setup.prefill > 0 else "")
        + (f"; decoding {setup.decode:g} iterations/s" if setup.decode > 0 else "")
    )
    build.meta = {
        "format": "mooncake" if hashed else "azure-llm",
        "lacks": ["model", "operators", "accesses", "kernel times"] + ([] if hashed else ["shared prefixes"]),
        "filled": {
            "model": f"{setup.model}, {clock.token:,} B per token in {setup.dtype}, weights {clock.weights:,} B",
            "operators": f"a prefill for each request, a decode for each {setup.stride} iterations of at most {setup.batch} "
            f"sequences; cache in blocks of {setup.block} tokens",
            "kernel times": service,
        },
        "requests": len(requests.arrival),
        "prompt_tokens": prompt,
        "output_tokens": output,
        "reused_tokens": server.reused,
        "token_bytes": clock.token,
        "block_tokens": setup.block,
        "arrivals_s": last / 1e9,
        "served_s": server.now / 1e9,
        "longest_wait_s": server.longest_wait / 1e9,
        "warnings": [
            f"this one server needs {server.now / 1e9:,.0f} s for requests that arrive within {last / 1e9:,.0f} s: "
            "deal them to several with --option instances=N, or give it other rates"
        ] if slow else [],
    }  # fmt: skip
    return build.finish()
