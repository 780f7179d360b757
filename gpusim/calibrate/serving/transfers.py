"""Transfers of keys and values between engines: latency and rate fitted to small ones, and what they say of large ones."""

from __future__ import annotations

import csv
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import numpy as np

DATA = Path(__file__).parent.parent / "data" / "kv_transfers.csv"
SMALL = 1e9
"""Bytes below which a transfer is fitted, and from which on it is held out."""


class KvTransfer(NamedTuple):
    """One published size: tokens of the prompt, bytes, ms of the transfer, ms to the first token."""

    tokens: int
    bytes: float
    ms: float
    ttft_ms: float


@dataclass(frozen=True)
class TransferFit:
    """ms of latency, and bytes/ms."""

    latency: float
    rate: float

    def ms(self, size: float) -> float:
        """Of a transfer of so many bytes."""
        return self.latency + size / self.rate


def published() -> list[KvTransfer]:
    """The rows of the file, in its order."""
    with DATA.open(encoding="utf-8") as file:
        rows = csv.DictReader(line for line in file if not line.startswith("#"))
        return [
            KvTransfer(int(r["prompt_tokens"]), float(r["bytes"]), float(r["transfer_ms"]), float(r["ttft_ms"])) for r in rows
        ]


def fitted(rows: list[KvTransfer]) -> TransferFit:
    """Least squares of the small ones."""
    small = [row for row in rows if row.bytes < SMALL]
    slope, latency = np.polyfit([row.bytes for row in small], [row.ms for row in small], 1)
    return TransferFit(float(latency), float(1.0 / slope))


def table() -> str:
    """As Markdown: what was published, what the fit says, and the time to the first token without the transfer."""
    rows = published()
    fit = fitted(rows)
    lines = [
        "| prompt | bytes | transfer, ms | said | error | | TTFT, ms | without the transfer |",
        "| ---: | ---: | ---: | ---: | ---: | --- | ---: | ---: |",
    ]
    for row in rows:
        said, part = fit.ms(row.bytes), "fitted" if row.bytes < SMALL else "held out"
        error = f"{100 * (said / row.ms - 1):+.1f} %"
        lines.append(
            f"| {row.tokens:,} | {row.bytes / 1e6:,.0f} MB | {row.ms:.2f} | {said:.2f} | {error} | {part} "
            f"| {row.ttft_ms:,.0f} | {row.ttft_ms - row.ms:,.0f} |"
        )
    return "\n".join([*lines, "", f"Latency {fit.latency:.2f} ms, rate {fit.rate / 1e6:.0f} GB/s."])
