"""Programs with something planted that an out-of-memory doctor is to find, and its score.  A developer's command.

    python tests/support/planted.py --oracle ~/.cache/torch_oracle/2.15.0/torch_oracle --seeds 5000:5300 --score
    python tests/support/planted.py --file tests/data/planted_cases.xz --score [--snapshot SEED FILE]

Every label is an answer of the real library (libc10_cuda.so on a runtime that only keeps books), never an intention.
C is the device's memory, given to the doctor as `capacity`.  Of it `outside` bytes are not PyTorch's; the rest is what
the device offers.  At a failed request, R is the size of the `oom` event, L the bytes requested and live.  Then

shortage       L + R is more than the device offers.
impossible     L + R, or R alone, is more than C (a shortage, too).
fragmentation  L + R is at most what the device offers, and the request failed.
foreign        outside > max(1 GiB, 2 % of C), and with that limit outside instead the real library serves the request.
other_device   on another device of the snapshot, at the recording's end, the real library serves the request.

In a program that is served all, of the recorded part:

fragmentation  needed - live peak >= 2 % of C.  needed: the least memory with which the real library serves the recorded
               part, beginning with an empty_cache; it then returns what it can before it fails.
cached         an empty_cache at a moment t in the recording's first half lowers the peak held from t on by >= 2 % of C.

In both:

leak           some stack allocates in every recorded step (but perhaps the first), in 5 steps at least, bytes that are
               never freed in the recording; in total >= 2 % of C.

Of several devices the one counts on which a request failed; where none did, nothing is wrong with the others.

The detail of a fragmentation is the pattern without which the request is served (or needed falls by half of the excess):
pieces (between live blocks), pool (pieces in the small pool for a large request, or the other way round), stream (cached
for another stream), private_pool, oversize (max_split_size_mb), rounding (roundup_power2_divisions).  Where waste came
about without a plant, the detail is not scored.

Advice of a setting is right when the real library, running the program under that setting alone in place of the recorded
one, serves the failed request; or, where none failed, saves at peak in the recorded part at least 2 % of C.  Where
recording began late, bytes held and saved are intervals over the ways in which the program may have come to the recorded
part, each compared with the recorded setting on the same way (`savings` in planted_savings.py): forgetting what was cached
before saves nothing.  An advice on which the ends disagree is not scored.  `Remedy.held` may lie 2 % outside of the interval.

A program that turned out otherwise than was intended keeps the library's label, and is counted.  Dropped, and counted, are
programs whose figures lie too near a limit, and those in which nothing changes without the plant.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
from collections import Counter
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))
from planted_library import Library
from planted_recipes import case, intended
from planted_score import Doctor, score, table
from planted_snapshot import pickled, read, record, write
from planted_truth import NotPlanted, TooClose, truth


def make(seeds: range, library: Library) -> tuple[list[dict[str, Any]], Counter[str]]:
    """The cases of these seeds, and why others were dropped."""
    found, dropped = list[dict[str, Any]](), Counter[str]()
    for seed in seeds:
        made = case(seed, library)
        if made is None:
            dropped["no device shows it"] += 1
            continue
        try:
            found.append(record(made, truth(made, library), library))
        except TooClose:
            dropped["too close to a limit"] += 1
        except NotPlanted:
            dropped["the same without the plant"] += 1
    return found, dropped


def doctor() -> Doctor:
    """The one under test, given each case as a file."""
    from gpusim.studies.fragmentation.doctor import examine

    folder = tempfile.TemporaryDirectory()

    def answer(case: dict[str, Any]) -> Any:
        path = Path(folder.name) / f"planted_{case['seed']}.pickle"
        path.write_bytes(pickled(case))
        try:
            return examine(path, capacity=case["total"])
        finally:
            path.unlink()

    return answer


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--oracle")
    parser.add_argument("--seeds", default="0:100", metavar="FROM:TO")
    parser.add_argument("--file", type=Path, help="stored cases instead")
    parser.add_argument("--score", action="store_true")
    parser.add_argument("--write", type=Path, metavar="FILE")
    parser.add_argument("--snapshot", nargs=2, metavar=("SEED", "FILE"), help="write this one as a snapshot")
    given = parser.parse_args()
    if given.file:
        cases = read(given.file)
    elif given.oracle:
        start, end = map(int, given.seeds.split(":"))
        cases, dropped = make(range(start, end), Library(given.oracle))
        print(f"{len(cases)} cases; dropped: {', '.join(f'{n} {why}' for why, n in dropped.items()) or 'none'}")
    else:
        parser.error("give --oracle or --file")
    other = sum(intended(c["family"]) != set(c["truth"]["causes"]) for c in cases)
    print(f"labelled otherwise than was intended, or with more: {other} of {len(cases)}")
    for causes, number in Counter(" ".join(c["truth"]["causes"]) or "nothing" for c in cases).most_common():
        print(f"{number:5} {causes}")
    if given.write:
        write(given.write, cases)
    if given.snapshot:
        Path(given.snapshot[1]).write_bytes(pickled(next(c for c in cases if c["seed"] == int(given.snapshot[0]))))
    if given.score:
        print(table(score(cases, doctor())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
