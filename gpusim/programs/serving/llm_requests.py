"""Request traces of LLM services, served by a stated model into a KV-cache workload (`kv_cache.py` is the server).

Mooncake: JSON lines {"timestamp": ms, "input_length", "output_length", "hash_ids"}: one hash per 512 tokens of the prompt
(the last may be shorter), which stands for these tokens and all before them (kvcache-ai/Mooncake, FAST25-release).
Azure: CSV TIMESTAMP,ContextTokens,GeneratedTokens (Azure/AzurePublicDataset, AzureLLMInferenceTrace); it has no hashes.
Both may name the LoRA adapter of a request, "adapter" or a fourth column Adapter; none where it is empty or 0.

    model       the model of the cache: gpt2, llama-1b, llama-8b, llama-70b, mistral-7b, qwen2.5-7b
    layers, heads, kv_heads, head_dim, parameters
                another model's shape, each in the place of the named model's
    dtype       of the cache; the weights have 2 bytes per parameter
    block       tokens of a cache block; default: 512 with hashes, which it must divide, else 16
    hash_tokens tokens that one hash stands for
    requests    only so many, from the first
    instances   the requests are dealt to so many GPUs in turn; this is the trace of the first
    batch       sequences under way at once, at most
    tokens      that sequences under way hold at once, prompts and whole outputs; 0: no limit
    stride      iterations of decoding that one operator stands for; sequences come and go between operators
    retain      seconds that a prefix no sequence uses stays in the cache; below 0: until no later request uses it
    profile     the machine whose kernel times count
    prefill, decode
                instead: prompt tokens a second, and iterations of decoding a second
    budget      accesses to cache blocks that the trace may have: a decode reads each block of each sequence under way.  An
                access needs up to 24 bytes of memory while it is read
"""

from __future__ import annotations

import json
from array import array
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from itertools import chain
from typing import Any, BinaryIO

from gpusim.base.errors import TraceError, shown, suggest
from gpusim.programs.serving.kv_cache import ServerRequests, serve
from gpusim.programs.serving.kv_service import MODELS, WIDTHS, Clock, Setup, clock_of
from gpusim.trace.check import MAX_FLOPS
from gpusim.trace.trace import Trace

_CSV = ("timestamp", "contexttokens", "generatedtokens")
_ADAPTER = "adapter"
_JSON = ("timestamp", "input_length", "output_length", "hash_ids")
_MAX_TOKENS = 10**8  # of one request
_LONGEST = 10 * 366 * 86_400 * 10**9  # ns
_MAX_SHAPE = 10**15  # parameters, and all else that says how large a model is
_MAX_STEP = 1 << 22  # tokens that one decode makes


def read(
    file: BinaryIO, path: str, *, name: str | None = None, model: str = "llama-8b", layers: int = 0, heads: int = 0,
    kv_heads: int = 0, head_dim: int = 0, parameters: float = 0.0, dtype: str = "bfloat16", block: int = 0,
    hash_tokens: int = 512, requests: int = 0, instances: int = 1, batch: int = 64, tokens: int = 0, stride: int = 16,
    retain: float = -1.0, profile: str = "a100-sxm4-80gb", prefill: float = 0.0, decode: float = 0.0, budget: int = 200_000_000,
) -> Trace:  # fmt: skip
    """The trace of serving the requests.  Raises TraceError with file:line."""
    for word, known in ((model, MODELS), (dtype, WIDTHS)):
        if word not in known:
            raise TraceError(f"there is no '{word}' to serve the requests with", path, suggest(word, known))
    for option, value, least in (
        ("hash_tokens", hash_tokens, 1), ("instances", instances, 1), ("batch", batch, 1), ("stride", stride, 1),
        ("block", block, 0), ("requests", requests, 0), ("tokens", tokens, 0),
    ):  # fmt: skip
        if not least <= value <= _MAX_TOKENS:
            fault = "small" if value < least else "large"
            raise TraceError(f"the option {option}={shown(value)} is too {fault}", path, f"from {least} to {_MAX_TOKENS}")
    if batch * stride > _MAX_STEP:
        raise TraceError(f"a decode of batch={batch} sequences and stride={stride} iterations is too large", path,
                         f"batch x stride is at most {_MAX_STEP:,}")  # fmt: skip
    for option, rate in (("prefill", prefill), ("decode", decode)):
        if rate and not 1e-3 <= rate <= 1e12:
            raise TraceError(f"the option {option}={rate:g} is no rate per second", path, "0: that of the profile")
    given = (("layers", layers), ("heads", heads), ("kv_heads", kv_heads), ("head_dim", head_dim), ("parameters", parameters))
    changed: dict[str, Any] = {field: value for field, value in given if value}
    for option, size in changed.items():
        if not 0 < size <= _MAX_SHAPE:
            raise TraceError(f"the option {option}={shown(size)} is no shape of a model", path, "0: as the named model's")
    wanted = requests * instances or None
    found = read_requests(file, path, hash_tokens, wanted)
    hashed = found.hash_tokens > 0
    block = block or (hash_tokens if hashed else 16)
    if hashed and hash_tokens % block:
        raise TraceError(f"blocks of {block} tokens do not fill a hash of {hash_tokens}", path, "block must divide it")
    found = found.every(instances)
    _check_budget(found, block, stride, budget, path)
    setup = Setup(
        model=model if not changed else f"{model} with {', '.join(changed)} changed",
        shape=replace(MODELS[model], **changed), dtype=dtype, block=block, batch=batch, tokens=tokens, stride=stride,
        retain=retain, profile=profile, prefill=prefill, decode=decode,
    )  # fmt: skip
    _check_prompts(found, clock_of(setup, path), path)
    trace_name = name or ("mooncake" if hashed else "azure-llm")
    return serve(trace_name, path, found, setup)


def read_requests(file: BinaryIO, path: str, hash_tokens: int = 512, wanted: int | None = None) -> ServerRequests:
    """The requests of a file of either format, at most `wanted`; prompts and outputs may be empty.  TraceError, file:line."""
    lines = _numbered(file)
    number, first = next(lines, (0, b""))
    if not number:
        raise TraceError("there is no request", path, f"a CSV of {','.join(_CSV)}, or JSON lines of Mooncake")
    if first.lstrip()[:1] == b"{":
        return _mooncake(chain([(number, first)], lines), path, hash_tokens, wanted)
    return _azure(_columns(first, path, number), lines, path, wanted)


def _check_budget(requests: ServerRequests, block: int, stride: int, budget: int, path: str) -> None:
    """Refuse what needs more accesses to blocks than `budget`, before anything is made of it."""
    accesses = 0
    for i, (prompt, output, line) in enumerate(zip(requests.prompt, requests.output, requests.line, strict=True)):
        decodes = -(-(output - 1) // stride)
        last = prompt + output - 1
        # Blocks read by the decodes: of the prompt, and half of those of the output on average; one written by each.
        mine = -(-prompt // block) + decodes * (-(-(prompt + last) // (2 * block)) + 1) + -(-output // block)
        accesses += mine
        if accesses > budget:
            what = f"this request of {prompt:,} + {output:,} tokens alone" if mine > budget else f"serving {i + 1:,} requests"
            raise TraceError(
                f"{what} makes about {max(mine, accesses):,} accesses to cache blocks, above the budget of {budget:,}",
                f"{path}:{line}", "take larger blocks or strides, fewer requests, or raise it: --option budget=N",
            )  # fmt: skip


def _check_prompts(requests: ServerRequests, clock: Clock, path: str) -> None:
    """Refuse a request without tokens, and a prompt that no operator can compute, before anything is made of it."""
    for prompt, output, line in zip(requests.prompt, requests.output, requests.line, strict=True):
        if prompt == 0 or output == 0:
            what = "an output" if prompt else "a prompt"
            raise TraceError(f"{what} of 0 tokens", f"{path}:{line}", "take it out; `gpusim serve` counts it as rejected")
        flops = clock.prefill(prompt, 0)[1]
        if flops > MAX_FLOPS:
            raise TraceError(f"computing a prompt of {prompt:,} tokens takes {flops:.2g} flops, which no kernel computes",
                             f"{path}:{line}", "is this the number of its tokens?")  # fmt: skip


def _numbered(file: BinaryIO) -> Iterator[tuple[int, bytes]]:
    """(number, line) of the lines that are neither empty nor comments."""
    for number, line in enumerate(file, 1):
        if line.strip() and not line.startswith(b"#"):
            yield number, line


def _mooncake(lines: Iterator[tuple[int, bytes]], path: str, hash_tokens: int, wanted: int | None) -> ServerRequests:
    found, names = ServerRequests(hash_tokens), dict[str, int]()
    for number, line in lines:
        if len(found.arrival) == wanted:
            break
        where = f"{path}:{number}"
        try:
            row = json.loads(line)
            ms, prompt, output, hashes = (row[key] for key in _JSON)
            keys = array("q", hashes)
            at = round(float(ms) * 1e6)
        except (ValueError, TypeError, KeyError, OverflowError, RecursionError):
            raise TraceError("this line is not a Mooncake request", where, "needed: " + ", ".join(_JSON)) from None
        _append(found, at, prompt, output, path, number)
        _want(found, row.get(_ADAPTER), names, where)
        if len(keys) != -(-prompt // hash_tokens):
            raise TraceError(
                f"{len(keys)} hashes do not cover {prompt} tokens", where, f"one for each {hash_tokens}; see hash_tokens"
            )
        found.hashes.append(keys)
    return found


def _columns(first: bytes, path: str, number: int) -> list[int]:
    """Where the three columns stand, and that of adapters where there is one."""
    names = [name.strip().lower() for name in first.decode("utf-8-sig", "replace").split(",")]
    missing = [column for column in _CSV if column not in names]
    if missing:
        said = f"the column '{missing[0]}' is missing"
        raise TraceError(said, f"{path}:{number}", f"needed: {', '.join(_CSV)}; or JSON lines of Mooncake")
    return [names.index(column) for column in (*_CSV, _ADAPTER) if column in names]


def _azure(columns: list[int], lines: Iterator[tuple[int, bytes]], path: str, wanted: int | None) -> ServerRequests:
    found, names = ServerRequests(0), dict[str, int]()
    start: datetime | None = None
    for number, line in lines:
        if len(found.arrival) == wanted:
            break
        where = f"{path}:{number}"
        fields = line.decode("utf-8", "replace").split(",")
        try:
            time, prompt, output, *adapter = (fields[i].strip() for i in columns)
            moment = datetime.fromisoformat(time)
            start = start or moment
            at = (moment - start) // timedelta(microseconds=1) * 1000
            _append(found, at, int(prompt), int(output), path, number)
            _want(found, adapter[0] if adapter else None, names, where)
        except (ValueError, TypeError, IndexError):
            raise TraceError("this line is not a request", where, "expected a time and two numbers of tokens") from None
    return found


def _want(found: ServerRequests, adapter: Any, names: dict[str, int], where: str) -> None:
    """The request wants the adapter of this name, or number, or none."""
    if adapter is not None and type(adapter) not in (str, int):
        raise TraceError(f"an adapter is named {shown(adapter)}", where, "by a name or a number; nothing or 0: none")
    name = str(adapter or "").strip()
    found.adapter.append(0 if name in ("", "0") else names.setdefault(name, len(names) + 1))


def _append(found: ServerRequests, at: int, prompt: Any, output: Any, path: str, line: int) -> None:
    where = f"{path}:{line}"
    for what, tokens, least in (("a prompt", prompt, 0), ("an output", output, 0)):
        if type(tokens) is not int or not least <= tokens <= _MAX_TOKENS:
            raise TraceError(f"{what} of {shown(tokens)} tokens", where, f"a number from {least} to {_MAX_TOKENS:,}")
    if found.arrival and at < found.arrival[-1]:
        raise TraceError("this request arrives before the one above it", where, "sort the file by time")
    if not 0 <= at - (found.arrival[0] if found.arrival else at) <= _LONGEST or abs(at) > 2**62:
        raise TraceError("this request arrives more than ten years after the first", where, "are the times in milliseconds?")
    found.line.append(line)
    found.arrival.append(at)
    found.prompt.append(prompt)
    found.output.append(output)
