"""Caches of experts: uses of experts that are simulated in a second of CPU time, the loop alone and with all tables made.

    python benchmarks/experts.py
"""

from __future__ import annotations

import time

import numpy as np

from gpusim.base.compiled import direct
from gpusim.engine.serving import experts as loop
from gpusim.engine.serving.expert_run import caches, turn_tables
from gpusim.studies.experts.setup import ExpertSpec, prepare

ROUTING = "drawn(sequences=16, prompt=64, output=512)"


def main() -> None:
    print(f"{'model':<16}{'evict':<8}{'uses':>12}{'loop [M/s]':>12}{'all [M/s]':>12}")
    for model in ("mixtral-8x7b", "qwen3-30b-a3b"):
        for evict in ("lru", "belady"):
            setup = prepare(ExpertSpec(model=model, machine="rtx-4090", bits=4, cache="40 %", evict=evict, routing=ROUTING))
            setup.run()
            shape, passes = setup.times.model, setup.passes
            ns = np.ones(1 + int(passes.m.max()), np.int64)
            whole, alone = [], []
            for _ in range(3):
                tiers = caches(setup.cache, passes, shape.sparse, shape.experts, shape.expert_bytes, 1000)
                work = np.zeros(len(passes.layer)), np.zeros(len(passes.part))
                made = turn_tables(passes, *work, (ns, ns), setup.cache, 1000, (shape.sparse, shape.experts))
                begins = time.process_time()
                direct(loop.replay)(tiers, made)
                alone.append(time.process_time() - begins)
                begins = time.process_time()
                setup.run()
                whole.append(time.process_time() - begins)
            uses = len(passes.unit)
            print(f"{model:<16}{evict:<8}{uses:>12,}{uses / min(alone) / 1e6:>12.1f}{uses / min(whole) / 1e6:>12.1f}")


if __name__ == "__main__":
    main()
