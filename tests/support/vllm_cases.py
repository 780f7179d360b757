"""Random cases for vLLM's scheduler, in families: each makes sure that its branch of the scheduler is reached.

A case is a dictionary that JSON can hold: the engine's limits and options, and requests in order of arrival with `at` (the step
before which it comes), `prompt` (tokens), `out` (tokens), `priority`, `leaves` (the step before which its client goes away, -1:
it stays), `below` (leading tokens that a tier below holds) and `adapter` (0: none).
load_steps is -1 without a tier, 0 where loads run at once.  Cases with `ahead` are for asynchronous scheduling: the next step
is composed before the output of the one under way has come; with `eos` outputs end by a token that the engine cannot foresee.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from typing import Any

Case = dict[str, Any]
Draw = random.Random


def token(i: int, k: int) -> int:
    """The k-th token that request i makes; prompts have tokens below 100."""
    return (i * 7919 + k * 104729) % 50000 + 100


def _case(draw: Draw, **given: Any) -> Case:
    """A case in which anything may happen but what a family asks for."""
    size = given.pop("block_size", None) or draw.choice([1, 2, 4, 8, 16])
    longest = given.pop("max_len", None) or draw.choice([32, 64, 200])
    need = -(-longest // size)
    spare = given.pop("spare", None) or (lambda: draw.randrange(0, 2 * need + 2))
    case = {
        "blocks": 1 + need + spare(), "block_size": size, "max_seqs": draw.choice([2, 4, 16]),
        "max_tokens": draw.choice([16, 64, 512]), "max_len": longest, "policy": draw.choice(["fcfs", "fcfs", "priority"]),
        "caching": draw.random() < 0.8, "chunked": True, "long_prefill": draw.choice([0, 0, 0, 8]),
        "reserve": draw.random() < 0.7, "watermark": 0.0, "load_steps": -1, "steps": 600,
    }  # fmt: skip
    case.update(given)
    case["requests"] = _requests(draw, case)
    return case


def _requests(draw: Draw, case: Case, most: int = 18, within: int = 30) -> list[Case]:
    longest = case["max_len"]
    roots = [[draw.randrange(1, 9) for _ in range(longest)] for _ in range(3)]
    made = []
    for _ in range(draw.randrange(2, most)):
        out = draw.randrange(1, max(longest // 3, 2))
        length = draw.randrange(1, longest - out)
        shared = draw.randrange(0, length + 1)
        prompt = roots[draw.randrange(3)][:shared] + [draw.randrange(1, 9) for _ in range(length - shared)]
        made.append(_request(draw.randrange(0, within), prompt, out, draw.randrange(3)))
    return sorted(made, key=lambda r: r["at"])


def _request(at: int, prompt: list[int], out: int, priority: int = 0) -> Case:
    return {"at": at, "prompt": prompt, "out": out, "priority": priority, "leaves": -1, "below": 0, "adapter": 0}


def fcfs(draw: Draw) -> Case:
    return _case(draw, policy="fcfs", spare=lambda: draw.randrange(0, 4))


def priority(draw: Draw) -> Case:
    return _case(draw, policy="priority", spare=lambda: draw.randrange(0, 4), max_seqs=draw.choice([4, 16]))


def caching_off(draw: Draw) -> Case:
    return _case(draw, caching=False)


def block_sizes(draw: Draw) -> Case:
    return _case(draw, block_size=draw.choice([1, 2, 3, 4, 5, 7, 8, 16, 24, 32, 48, 64]))


def few_blocks(draw: Draw) -> Case:
    return _case(draw, spare=lambda: draw.randrange(0, 3), max_seqs=16, max_tokens=draw.choice([64, 512]), reserve=False)


def many_blocks(draw: Draw) -> Case:
    case = _case(draw, max_seqs=16)
    return case | {"blocks": case["blocks"] + 20 * (-(-case["max_len"] // case["block_size"]))}


def long_prefill_threshold(draw: Draw) -> Case:
    return _case(draw, long_prefill=draw.choice([1, 3, 8, 20]), max_len=200, max_tokens=draw.choice([64, 512]))


def whole_prompts(draw: Draw) -> Case:
    longest = draw.choice([32, 64, 200])
    case = _case(draw, chunked=False, max_len=longest, max_tokens=longest + draw.randrange(0, 40), long_prefill=0)
    return case | {"max_seqs": draw.choice([4, 16])}


def admission_gate(draw: Draw) -> Case:
    return _case(draw, reserve=True, spare=lambda: draw.randrange(0, 6), max_tokens=16, max_len=draw.choice([64, 200]))


def watermark(draw: Draw) -> Case:
    return _case(draw, watermark=draw.choice([0.05, 0.1, 0.3, 0.5]), reserve=draw.random() < 0.5)


def long_prompts(draw: Draw) -> Case:
    case = _case(draw, max_len=600, block_size=draw.choice([8, 16, 32]), max_tokens=draw.choice([32, 64, 100]))
    for request in case["requests"]:
        request["prompt"] += [draw.randrange(1, 9) for _ in range(max(550 - len(request["prompt"]) - request["out"], 0))]
        request["out"] = min(request["out"], 30)
    return case


def bursts(draw: Draw) -> Case:
    case = _case(draw)
    case["requests"] = _requests(draw, case, most=50, within=1)
    for request in case["requests"]:
        request["at"] = draw.choice([0, 0, 25])
    case["requests"].sort(key=lambda r: r["at"])
    return case


def identical_prefixes(draw: Draw) -> Case:
    case = _case(draw, caching=True, block_size=draw.choice([1, 2, 4, 16]))
    prompt = [draw.randrange(1, 9) for _ in range(case["max_len"] * 2 // 3)]
    for request in case["requests"]:
        request["prompt"] = prompt[: draw.choice([len(prompt), len(prompt), len(prompt) // 2])]
        request["out"] = min(request["out"], case["max_len"] - len(request["prompt"]) - 1)
    return case


def nested_prefixes(draw: Draw) -> Case:
    """Turns of conversations: a prompt goes on from an earlier one and what has been answered."""
    case = _case(draw, caching=True, block_size=draw.choice([1, 2, 4]), max_len=200)
    made: list[Case] = []
    for i, request in enumerate(case["requests"]):
        request["at"] = 12 * i
        request["out"] = draw.randrange(1, 20)
        request["prompt"] = request["prompt"][:30]
        if made and draw.random() < 0.8:
            j = draw.randrange(len(made))
            turn = made[j]["prompt"] + [token(j, k) for k in range(made[j]["out"])] + request["prompt"][: draw.randrange(0, 9)]
            if len(turn) + request["out"] < case["max_len"]:
                request["prompt"] = turn
        made.append(request)
    return case | {"steps": 900}


def aborts(draw: Draw) -> Case:
    case = _case(draw, spare=lambda: draw.randrange(0, 8))
    for request in case["requests"]:
        if draw.random() < 0.5:
            request["leaves"] = request["at"] + draw.randrange(1, 30)
    return case


def too_long(draw: Draw) -> Case:
    """Outputs that the longest sequence cuts off."""
    case = _case(draw)
    for request in case["requests"]:
        if draw.random() < 0.5:
            request["out"] += case["max_len"]
    return case


def loads(draw: Draw) -> Case:
    """Keys and values come from a tier below, while the request waits or at once."""
    case = _case(draw, caching=draw.random() < 0.9, load_steps=draw.choice([0, 1, 2, 5, 9]), reserve=draw.random() < 0.5)
    for request in case["requests"]:
        blocks = len(request["prompt"]) // case["block_size"]
        request["below"] = draw.randrange(0, blocks + 1) * case["block_size"]
        if draw.random() < 0.2:
            request["leaves"] = request["at"] + draw.randrange(1, 20)
    return case


def lora(draw: Draw) -> Case:
    """Requests with adapters, more than there are slots for; some come from a tier below, some have the prompts of others."""
    loads_take = draw.choice([-1, -1, -1, 0, 2, 5])
    case = _case(draw, load_steps=loads_take, caching=draw.random() < 0.9, max_seqs=draw.choice([4, 16]))
    case["max_loras"] = draw.choice([1, 1, 2, 3, 5])
    adapters = case["max_loras"] + draw.randrange(0, 6)
    for request in case["requests"]:
        request["adapter"] = draw.randrange(0, adapters + 1)
        if loads_take >= 0:
            request["below"] = draw.randrange(0, len(request["prompt"]) // case["block_size"] + 1) * case["block_size"]
        if draw.random() < 0.1:
            request["leaves"] = request["at"] + draw.randrange(1, 30)
    return case


FAMILIES: dict[str, Callable[[Draw], Case]] = {
    family.__name__: family
    for family in (
        fcfs, priority, caching_off, block_sizes, few_blocks, many_blocks, long_prefill_threshold, whole_prompts,
        admission_gate, watermark, long_prompts, bursts, identical_prefixes, nested_prefixes, aborts, too_long, loads, lora,
    )
}  # fmt: skip


def cases(
    count: int, seed: int, families: tuple[str, ...] = tuple(FAMILIES), ahead: bool = False
) -> Iterator[Case]:
    """So many cases of a seed, the families in turn; case n of a seed is always the same."""
    for number in range(count):
        family = families[number % len(families)]
        made = FAMILIES[family](random.Random(f"{seed} {number} {family}"))
        more = {"ahead": True, "eos": random.Random(f"{seed} {number}").random() < 0.5} if ahead else {}
        yield {"number": number, "family": family, "seed": seed} | made | more
