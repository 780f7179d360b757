"""The compiled time of a step: each part worked out by hand from a table of round numbers."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from gpusim.machine.serving import step

pytestmark = [pytest.mark.fast, pytest.mark.hand_worked]


def table(**other: Any) -> np.ndarray:
    """100 ns a token of products, 10 of collectives, 1 of others, up to 64 tokens; 1,000 ns of products for each request."""
    tokens, requests = np.arange(65.0), np.arange(9.0)
    numbers: dict[str, Any] = {
        "by_token": np.stack([100 * tokens, 10 * tokens, tokens]),
        "by_request": np.stack([1000 * requests, 0 * requests, 0 * requests]),
        "decode": np.log(_products(8, 12, lambda b, kv: 2 * b * kv)),
        "prefill": np.log(_products(6, 12, lambda n, q: n * q * (q + 1) / 2)),
        "captured": [1, 2, 4, 8, 16], "mixed": 1, "overlap": 1, "host_step": 0.0, "host_request": 0.0, "host_token": 0.0,
        "launches": 0.0, "low": [0.5] * 5, "high": [2.0] * 5,
    }  # fmt: skip
    return step.packed({**numbers, **other})


def _products(rows: int, columns: int, ns: Any) -> np.ndarray:
    x, y = (np.exp2(np.arange(n * step.STEPS + 1) / step.STEPS) for n in (rows, columns))
    return ns(x[:, None], y[None, :])


def times(numbers: np.ndarray, before: list[int], tokens: list[int]) -> tuple[int, dict[str, int]]:
    parts = np.zeros(5, np.int64)
    ns = step.step_time(numbers, np.array(before), np.array(tokens), len(tokens), parts)
    return ns, dict(zip(step.PARTS, parts.tolist(), strict=True))


def test_decode_of_captured_size() -> None:
    """Four requests with 63, 127, 127 and 191 tokens before: 512 keys of 4, 128 each; 2 * 4 * 128 ns, longest 2 * 192."""
    ns, parts = times(table(), [63, 127, 127, 191], [1, 1, 1, 1])
    assert parts == {"gemm": 4 * 100 + 4 * 1000, "attention": 1024, "collectives": 40, "other": 4, "host": 0}
    assert ns == 5468


def test_the_longest_alone_is_the_least() -> None:
    """Of 4 requests one has 4,096 keys, the others one: mean 1,024.75, so 8,198 ns; it alone 8,192."""
    assert times(table(), [0, 0, 0, 4095], [1, 1, 1, 1])[1]["attention"] == 8198
    flat = table(decode=np.log(_products(8, 12, lambda b, kv: 2 * kv + 0 * b)))
    assert times(flat, [0, 0, 0, 4095], [1, 1, 1, 1])[1]["attention"] == 8192


def test_steps_are_padded_to_the_captured_size() -> None:
    """Three tokens count as 4, five as 8; 17 are in no graph and count as they are; attention is not padded."""
    assert times(table(), [0] * 3, [1] * 3)[1]["gemm"] == 4 * 100 + 3 * 1000
    assert times(table(), [0] * 5, [1] * 5)[1]["other"] == 8
    assert times(table(), [0], [17])[1]["other"] == 17


def test_graphs_of_decode_only() -> None:
    only = table(mixed=0)
    assert times(only, [5, 0], [1, 2])[1]["other"] == 3
    assert times(only, [5, 0, 0], [1, 1, 1])[1]["other"] == 4


def test_prompts_and_chunks() -> None:
    """A prompt of 8: 36 pairs.  The chunk of 4 after 4: 4 * 4 + 10 = 26 pairs, at the rate of a prompt of 8: 26 ns."""
    whole = table(decode=np.log(_products(8, 12, lambda b, kv: 1e-3 * b * kv)))
    assert times(whole, [0], [8])[1]["attention"] == 36
    assert times(whole, [4], [4])[1]["attention"] == 26
    assert times(whole, [0, 0], [8, 8])[1]["attention"] == 72


def test_a_chunk_reads_its_context() -> None:
    """Two tokens after 2,046 are 4,095 pairs, 4,095 ns; one query over 2,048 keys takes 4,096 ns, which is the least."""
    assert times(table(), [2046], [2])[1]["attention"] == 4096


def test_beyond_the_table_in_a_straight_line() -> None:
    assert times(table(captured=[]), [0], [100])[1]["gemm"] == 100 * 100 + 1000
    assert times(table(captured=[]), [0] * 20, [1] * 20)[1]["gemm"] == 20 * 100 + 20 * 1000


def test_host_that_overlaps_and_one_that_does_not() -> None:
    """A step of 1 token with 1 key takes 100 + 1,000 + 10 + 1 + 2 ns; the host 5,000 + 3 + 7."""
    host = {"host_step": 5000.0, "host_request": 3.0, "host_token": 7.0}
    assert times(table(overlap=0, **host), [0], [1]) == (1113 + 5010, {
        "gemm": 1100, "attention": 2, "collectives": 10, "other": 1, "host": 5010,
    })  # fmt: skip
    assert times(table(**host), [0], [1])[1]["host"] == 5010 - 1113


def test_launching_counts_outside_of_graphs() -> None:
    eager = table(launches=10000.0)
    assert times(eager, [0], [1])[1]["host"] == 0
    assert times(eager, [0], [32])[0] == 10000
    assert times(table(launches=10000.0, captured=[]), [0], [1])[0] == 10000


def test_requests_that_are_not_in_the_step() -> None:
    assert times(table(), [7, 100, 7], [1, 0, 1]) == times(table(), [7, 7], [1, 1])
    assert times(table(), [5, 5], [0, 0]) == (0, dict.fromkeys(step.PARTS, 0))


def test_interval_is_that_of_the_parts() -> None:
    numbers = table(low=[0.5, 1.0, 1.0, 1.0, 1.0], high=[2.0, 3.0, 1.0, 1.0, 1.0])
    bounds = np.zeros(2)
    step.step_interval(numbers, np.array([100, 10, 1, 1, 1]), bounds)
    assert bounds.tolist() == [63.0, 233.0]
