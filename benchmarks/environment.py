"""Decisions per second of CPU time of `gpusim.environment`, bare: the first candidate, or the same depth, in every step.

    python benchmarks/environment.py
"""

from __future__ import annotations

import time

import gpusim

SIXTEEN = ("size", "last_use", "uses", "dirty")  # of 4 candidates
LOADS = {
    "victim, resnet50-train": ("resnet50-train", {"observe": SIXTEEN}),
    "victim, llama-1b-decode": ("llama-1b-decode", {"observe": SIXTEEN}),
    "prefetch, llama-1b-train": ("llama-1b-train", {"decide": "prefetch", "observe": ("free", "missing", "waited")}),
}


def main() -> None:
    for name, (program, asked) in LOADS.items():
        env = gpusim.environment(program, on="a100-pcie-40gb", memory="60 %", **asked)
        steps, spent = 0, []
        for _ in range(5):
            env.reset()
            ended, steps, began = False, 0, time.process_time()
            while not ended:
                ended = env.step(0)[2]
                steps += 1
            spent.append(time.process_time() - began)
        numbers = env.observation_space.shape[0]
        print(f"{name:28} {steps:6,} steps, {steps / min(spent):9,.0f} a second of CPU time, {numbers} numbers")


if __name__ == "__main__":
    main()
