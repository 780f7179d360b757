"""Reproduces `data/lengths.csv` from the published request traces (a developer's tool; the product only reads its result).

    python -m gpusim.programs.lengths.record FOLDER
"""

from __future__ import annotations

import csv
import gzip
import json
import sys
from pathlib import Path

import numpy as np

from gpusim.programs.lengths.draw import TABLE
from gpusim.trace.trace import I64

FILES = {
    "azure-conv": "AzureLLMInferenceTrace2023_conv.csv.gz",
    "azure-code": "AzureLLMInferenceTrace2023_code.csv.gz",
    "mooncake": "mooncake_conversation_trace.jsonl.gz",
}
SHARES = [*range(100), 99.5, 99.9, 100]  # %
HEAD = """\
# Quantiles of the tokens of prompts and outputs of recorded LLM services: share of the requests in %, tokens.
# Changed from the sources: only these quantiles are kept.  Made by `python -m gpusim.programs.lengths.record`.
# azure-conv, azure-code: AzureLLMInferenceTrace2023, Azure/AzurePublicDataset @ b469a113, (c) Microsoft, CC-BY-4.0;
#   P. Patel et al., "Splitwise", ISCA 2024.  19,366 and 8,819 requests.
# mooncake: conversation trace, kvcache-ai/Mooncake @ 3b5a5941, Apache-2.0; R. Qin et al., FAST 2025.  12,031 requests.
"""


def read(file: Path) -> tuple[I64, I64]:
    """(tokens of each prompt, tokens of each output)."""
    with gzip.open(file, "rt", encoding="utf-8") as lines:
        if ".csv" in file.name:
            rows = [(int(r["ContextTokens"]), int(r["GeneratedTokens"])) for r in csv.DictReader(lines)]
        else:
            rows = [(int(r["input_length"]), int(r["output_length"])) for r in map(json.loads, lines)]
    found = np.array(rows, np.int64)
    return found[:, 0], found[:, 1]


def table(folder: Path) -> str:
    columns: dict[str, list[int]] = {}
    for name, file in FILES.items():
        for what, tokens in zip(("prompt", "output"), read(folder / file), strict=True):
            columns[f"{name} {what}"] = np.round(np.percentile(tokens, SHARES)).astype(int).tolist()
    rows = [",".join(map(str, row)) for row in zip(SHARES, *columns.values(), strict=True)]
    return HEAD + "\n".join([",".join(["share", *columns]), *rows]) + "\n"


if __name__ == "__main__":
    TABLE.write_text(table(Path(sys.argv[1])), "utf-8")
