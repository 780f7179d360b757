"""Does the fault report say in words what its numbers say?"""

from __future__ import annotations

from dataclasses import replace

from made_results import MS, faulting

from gpusim.engine.pages.advisor import Advised, Finding
from gpusim.results.faults import FaultReport, ProcessFaults
from gpusim.results.folder import load_result, save_result
from gpusim.show.faults import advice, markdown, text, verdict


def made() -> FaultReport:
    found = faulting().faults
    assert found is not None
    return found


def test_the_verdict_says_what_the_time_went_to_and_why():
    assert verdict(made(), 2.5 * MS) == (
        "75 % of the 10 ms are lost: with room for everything the fastest of these settings takes 2.5 ms, so this is 4.00×. "
        "4 MiB of the 12 MiB that came to the GPU had been evicted from it before (6 MiB for 16 MiB); "
        "a came 1.5 times over: it is asked for from its first byte to its last, again and again, and what was served first "
        "leaves first, just before its next turn. "
        "The driver's work on the host is 40 % of the time, 444 us for each of 9 batches, half of which have one fault: "
        "a fault at a time costs most."
    )
    assert verdict(made()).startswith(
        "Of 10 ms, 10 % is the program's own work; driver's host work 40 %, copies in 30 % and copies out 20 %."
    )
    # What of the time the driver's work is has been said.
    assert verdict(made()).endswith(
        "The driver works 444 us on the host for each of 9 batches, half of which have one fault: a fault at a time costs most."
    )
    assert verdict(made()).count("40 %") == 1


def test_a_run_that_fits_is_said_to_be_its_own_work():
    quiet = replace(made(), times={"gpu": 9.9 * MS, "cpu": 0.0, "driver": 0.1 * MS, "remote": 0.0, "copy_in": 0.0,
                                   "copy_out": 0.0, "waited": 0.0}, allocations=made().allocations[1:])  # fmt: skip
    assert verdict(quiet) == "Nearly all of the 10 ms is the program's own work."


def test_ping_pong_and_remote_memory_are_named_with_their_allocation():
    a = made().allocations[0]
    ball = replace(a, again=0, swept=0, ping_pong=6 * 2**20, went=a.went | {"eviction": 0, "demand": 8 * 2**20}, remote=2**20)
    ball = replace(ball, faults=ball.faults | {"throttled": 1200}, pinned=3)
    said = verdict(replace(made(), allocations=[ball], times=made().times | {"remote": 3.0 * MS}, batches=[]))
    assert "a goes to and fro: the CPU took 8 MiB from the GPU, and 6 MiB came back" in said
    assert "the driver throttled 1,200 and pinned 3 pages" in said
    assert "; the driver pinned 3 pages." in verdict(
        replace(made(), allocations=[replace(ball, faults=ball.faults | {"throttled": 0})], batches=[])
    )
    # Nothing was evicted: it is not memory that is lacking, however much faster other settings are.
    assert verdict(replace(made(), allocations=[ball]), 2.5 * MS).startswith("Of 10 ms")
    assert "Kernels wait 30 % of the time for memory that stays on the other side of the link, most of it a (1 MiB)." in said


def test_the_printed_report_has_causes_batches_bytes_and_allocations():
    said = text(made(), "sweep on A100")
    assert said.startswith("sweep on A100\n\nOf 10 ms")
    assert "Faults    GPU reads 330, of these evicted before 306\n" in said
    assert "9 of 37.8 faults (median 1, p90 310, largest 310); of 340 fetched 2.94 % duplicates" in said
    even = text(replace(made(), batches=[(256, 3)], counts=made().counts | {"duplicates": 0, "satisfied": 0}), "")
    assert "Batches   3 of 256 faults; " in even
    assert "duplicates" not in even and "already served" not in even
    assert "prefetched 10.7 MiB, came again 4 MiB, evicted 4 MiB, of these clean 4 MiB" in said
    assert [line.split()[0] for line in said.splitlines()[-2:]] == ["a", "b"]
    assert "| a | 8 MiB | 330 | 0 | 12 MiB | 4 MiB | - | - | - | 5 ms |" in markdown(made(), "sweep")


def test_a_report_is_kept_with_its_run(tmp_path):
    folder = save_result(tmp_path, "0" * 16, faulting())
    kept = load_result(folder)
    assert kept.faults == made() and kept.faults.picture is not None
    assert (kept.faults.picture.pages == made().picture.pages).all()
    bare = load_result(folder, timeline=False)
    assert bare.faults == made() and bare.faults.picture is None


def test_a_process_among_several_has_batches_of_its_own() -> None:
    report = made()
    counts = report.counts | {"batches": 2, "fetched": 100, "duplicates": 40}
    rows = [ProcessFaults(name, 1e9, 60, 2, 0, 0, 0, 0) for name in ("mine", "other")]
    said = text(replace(report, counts=counts, processes=rows), "run")
    of_all = sum(n for _, n in report.batches)
    assert "Batches   2 of 50.0 faults; of 100 fetched 40 % duplicates" in said
    assert f"those of all processes: {of_all:,} of" in said
    assert "for each of 2 batches." in said or "for each of" not in said


def test_hints_of_a_run_that_loses_nothing_are_told_in_times() -> None:
    found = Advised(2e6, [Finding("a", "prefetch", 2e6, 1e6)], [], 3)
    assert "2 ms → 1 ms, 1 ms saved" in advice(found, 2e6) and "2.00× → 1.00×" in advice(found, 1e6)
