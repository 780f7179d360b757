"""Do tables and reports say what the numbers say, on any width, and in words where there is no number?"""

from __future__ import annotations

import json
import re

import pytest
from made_results import GIB, MS, run, sweep

from gpusim.base.errors import ResultError
from gpusim.show.answer import answer
from gpusim.show.basis import basis
from gpusim.show.figure import policy_comparison
from gpusim.show.report import doubts, report, write_report
from gpusim.show.standing import standings
from gpusim.show.table import markdown, render, rows
from gpusim.show.view import layout, line_name, main_metric, number, pick, text, varying


@pytest.mark.parametrize("width", [40, 60, 80, 200])
def test_a_table_fits_the_terminal_and_never_cuts_a_number(width):
    shown = render(sweep(profile="A100") + sweep(profile="GH200-with-a-long-name"), width=width)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert "…" not in shown
    for value in ("1.60", "1.80", "1.30"):
        assert value in shown


def test_wider_terminals_show_more_columns():
    headers = [render(sweep(), width=w).splitlines()[0] for w in (50, 90, 200)]
    assert "slowdown [×]" in headers[0] and "makespan [ms]" not in headers[0]
    assert "makespan [ms]" in headers[1] and "reserved [GiB]" in headers[2]


def test_what_a_run_is_measured_against_comes_before_other_numbers():
    runs = [
        run(evict, place=place, slowdown=slowdown, transform=transform)
        for evict, slowdown in (("lru", 1.5), ("fifo", 2.0))
        for place in ("pytorch", "best_fit")
        for transform in ("none", "checkpointing")
    ]
    for r in runs:
        r.bounds.update(bound_oracle_ns=120 * MS, bound_best_plan_ns=100 * MS)
    said = report(runs)
    for shown in (render(runs, width=120), said):
        lines = shown.splitlines()
        at, header = next((i, line) for i, line in enumerate(lines) if "over oracle" in line)
        assert sum("1.25×" in line and "1.50×" in line for line in lines[at:]) == 4, "lru's"
        names = ("slowdown", "over oracle", "over best plan", "in [GiB]", "least in [GiB]")
        found = [header.index(name) for name in names]
        assert found == sorted(found) and "stall" not in header[: found[-1]]
    assert "Over best plan: the makespan over that of the best plan" in said
    assert "Over best plan" not in report(sweep()) and "Least in" in report(sweep())


def test_programs_in_turns_with_too_little_memory_are_compared_by_when_all_have_ended():
    runs = [run(tenancy=f"over_commit(policy={name})") for name in ("first_come", "nvshare")]
    for r, ended in zip(runs, (300, 200), strict=True):
        r.metrics.update(all_ended_ns=ended * MS, others_slowdown=8572.4)
    header, first, second = render(runs, width=120).splitlines()[:3]
    assert main_metric(runs) == "all_ended_ns" and "time until all ended [ms]" in header
    assert "makespan [ms]" in header and "others" not in header
    assert "nvshare" in first and "200" in first and "1.50×" in second
    assert "Which tenancy ends all programs first?" in [text.get_text() for text in policy_comparison.draw(runs).texts]


def test_a_way_to_share_no_gpu_that_is_best_is_said_to_share_none():
    alone, turns, mps = (run(tenancy=way, slowdown=x) for way, x in (("exclusive", 1), ("time_slices", 3), ("mps", 2)))
    assert "exclusive is a GPU for each program, the others share one." in answer([alone, turns, mps])
    assert "a GPU for each" not in answer([turns, mps])


def test_slowdown_stays_where_programs_are_compared_by_makespan():
    runs = [run(transform=chain, slowdown=slowdown) for chain, slowdown in (("none", 1.5), ("checkpointing", 1.2))]
    header, first, second = render(runs, width=80).splitlines()[:3]
    assert main_metric(runs) == "makespan_ns" and "slowdown" in header
    assert "1.20×" in first and "1.50×" in second


def test_the_best_is_bold_ratios_are_to_the_best_and_oracles_are_starred():
    shown = render(sweep(), width=100)
    lines = {tuple(line.split()[:3]): line for line in shown.splitlines() if "GiB" in line}
    assert "1.60" in lines["4", "GiB", "sieve"] and "1.00×" in lines["4", "GiB", "sieve"]
    assert "1.12×" in lines["4", "GiB", "lru"]
    assert "belady *" in lines["4", "GiB", "belady"] and "0.81×" in lines["4", "GiB", "belady"]
    assert "out of memory" in lines["4", "GiB", "random"]
    coloured = render(sweep(), width=100, colour=True)
    bold = [line for line in coloured.splitlines() if "\x1b[1m" in line and "4 GiB" in line]
    assert len(bold) == 1 and "sieve" in bold[0]


def test_what_all_runs_share_stands_once_below():
    shown = render(sweep(), width=100)
    assert "gpt2 · A100 · place pytorch · prefetch none" in shown
    assert "reads the future" in shown


def test_one_run_and_only_failed_runs_have_tables():
    assert "1.80" in render(sweep()[:1], width=40)
    assert "out of memory" in render([r for r in sweep() if not r.finished], width=40)


def test_rows_are_plain_json_in_base_units():
    made = json.loads(json.dumps(rows(sweep())))
    sieve = next(r for r in made if r["evict"] == "sieve" and r["memory_bytes"] == 4 * GIB)
    assert sieve["makespan_ns"] == 160_000_000 and sieve["ratio_to_best"] == 1.0 and sieve["tied_for_best"]
    failed = next(r for r in made if r["outcome"] == "oom")
    assert failed["evict"] == "random" and failed["ratio_to_best"] is None and not failed["tied_for_best"]
    belady = next(r for r in made if r["evict"] == "belady" and r["memory_bytes"] == 4 * GIB)
    assert belady["oracle"] and not belady["tied_for_best"]


def test_a_name_with_markup_or_a_pipe_is_shown_as_it_is():
    runs = [run("[bold]mine"), run("a|b", slowdown=2.0)]
    assert "[bold]mine" in render(runs)
    assert "a\\|b" in markdown(runs)


def test_within_one_percent_is_a_tie():
    runs = [run("a", slowdown=1.500), run("b", slowdown=1.514), run("c", slowdown=1.52)]
    (place,) = standings(runs)
    assert place.winners == ("a", "b")
    assert "a and b tie for the lowest slowdown" in answer(runs)


def test_the_answer_names_winner_distance_oracle_change_and_failures():
    said = answer(sweep())
    assert "At 4 GiB memory: sieve has the lowest slowdown, 1.60×; clock and lru have 1.80×." in said
    assert "belady*, which reads the future, has 1.30×." in said
    assert "sieve is best or tied everywhere." in said
    assert "To finish, belady, clock and 2 others need 4 GiB memory; random needs 6 GiB memory." in said


def test_the_answer_says_where_the_winner_changes():
    runs = [run("a", 4 * GIB, 1.2), run("b", 4 * GIB, 1.4), run("a", 8 * GIB, 1.2), run("b", 8 * GIB, 1.1)]
    assert "That changes: at 8 GiB memory b is ahead." in answer(runs)


def test_of_those_that_tie_only_the_best_elsewhere_is_named_there():
    runs = [run(n, 4 * GIB, s, profile="A100") for n, s in (("a", 1.2), ("b", 1.2), ("c", 1.5))]
    runs += [run(n, 4 * GIB, s, profile="H100") for n, s in (("a", 1.2), ("b", 1.4), ("c", 1.5))]
    runs += [run(n, 4 * GIB, s, profile="GH200") for n, s in (("a", 1.1), ("b", 1.1), ("c", 1.5))]
    said = answer(runs)
    assert "a and b tie for the lowest slowdown" in said
    assert "a is best or tied on H100 as well." in said and "a and b are best or tied on GH200 as well." in said


def test_other_machines_are_told_apart_from_other_sizes():
    runs = [run(n, m, s, profile="A100") for m in (4 * GIB, 8 * GIB) for n, s in (("a", 1.2), ("b", 1.4))]
    runs += [run(n, 4 * GIB, s, profile="H100") for n, s in (("a", 1.3), ("b", 1.1))]
    runs += [run(n, 4 * GIB, s, profile="GH200") for n, s in (("a", 1.1), ("b", 1.2))]
    said = answer(runs)
    assert said.startswith("At A100 · 4 GiB memory: a has the lowest slowdown, 1.20×; b has 1.40×.")
    assert "a is best or tied at every size on A100." in said
    assert "a is best or tied on GH200 as well. b is ahead on H100." in said
    runs += [run(n, 4 * GIB, s, profile="L4") for n, s in (("a", 1.3), ("b", 1.1))]
    assert "b is ahead on H100 and L4." in answer(runs)


def test_oracles_compete_among_themselves_when_there_is_nothing_else():
    runs = [run(e, slowdown=s, prefetch="oracle", oracle=["prefetch"]) for e, s in (("lru", 1.2), ("fifo", 1.5))]
    assert answer(runs) == "lru has the lowest slowdown, 1.20×; fifo has 1.50×."
    assert [r["tied_for_best"] for r in rows(runs)] == [True, False]


def test_a_lone_survivor_is_no_winner():
    runs = [run("a", 4 * GIB, 3.0), run("b", 4 * GIB, outcome="oom"), run("c", 4 * GIB, outcome="oom")]
    runs += [run("a", 8 * GIB, 2.0), run("b", 8 * GIB, 1.5), run("c", 8 * GIB, 1.6)]
    said = answer(runs)
    assert said.startswith("At 8 GiB memory: b has the lowest slowdown, 1.50×")
    assert "To finish, a needs 4 GiB memory; b and c need 8 GiB memory." in said


def test_what_a_failed_run_held_is_no_result():
    runs = [run(place="a", memory=8 * GIB), run(place="b", memory=8 * GIB), run(place="c", memory=8 * GIB, outcome="oom")]
    for r, held in zip(runs, (6, 7, 5), strict=True):
        r.metrics["reserved_peak_bytes"] = held * GIB
    assert main_metric(runs) == "reserved_peak_bytes"
    assert answer(runs) == "a has the lowest reserved peak, 6 GiB; b has 7 GiB. c runs out of memory."
    assert [r["ratio_to_best"] for r in rows(runs)] == [1.0, pytest.approx(7 / 6), None]
    assert [line.split()[0] for line in render(runs).splitlines()[1:4]] == ["a", "b", "c"]


def test_a_run_without_a_known_time_counts_as_finished():
    """A snapshot replays without times: its runs are compared by the memory that they hold, and those that end have ended."""
    timed = [run(place=p, memory=m * GIB, slowdown=s, trace="a") for p, s in (("buddy", 1.0), ("slab", 1.2)) for m in (4, 8)]
    timeless = [
        run(place=p, memory=m * GIB, trace="b", outcome="oom" if p == "slab" and m == 4 else "finished")
        for p in ("buddy", "slab") for m in (4, 8)
    ]  # fmt: skip
    for r in timeless:
        for name in [name for name in r.metrics if name.endswith("_ns")]:
            del r.metrics[name]
    for metric in ("makespan_ns", "reserved_peak_bytes"):
        said = answer([*timed, *timeless], metric)
        assert "To finish on b, buddy needs 4 GiB memory; slab needs 8 GiB memory." in said and "never" not in said
    assert main_metric([*timed, *timeless]) == "reserved_peak_bytes" and main_metric(timed) != "reserved_peak_bytes"


def test_a_policy_that_never_finishes_is_told():
    runs = [run(n, m, outcome="oom" if n == "b" else "finished") for n in "ab" for m in (4 * GIB, 8 * GIB)]
    assert answer(runs).endswith("To finish, a needs 4 GiB memory; b never does.")


def test_no_answer_is_made_up():
    assert answer([]) == ""
    assert (
        answer([run(outcome="oom"), run("fifo", outcome="host_oom")])
        == "No run finished: host out of memory and out of memory. Use more."
    )
    assert answer([run(slowdown=1.5)]) == "Slowdown: 1.50×."


def test_what_varies_decides_the_roles():
    plan = layout(sweep(profile="A100") + sweep(profile="H100"))
    assert (plan.across, plan.lines, plan.panels) == ("memory", ("evict",), ("profile",))
    shares = [run(e, memory=m, memory_share=m / 8 / GIB) for e in ("lru", "fifo") for m in (4 * GIB, 8 * GIB)]
    assert varying(shares) == ["evict", "memory_share"] and layout(shares).across == "memory_share"
    machines = [run(profile=p) for p in ("A100", "H100")]
    assert layout(machines).lines == ("profile",) and main_metric(machines) == "makespan_ns"
    assert main_metric(sweep()) == "slowdown"
    assert main_metric([run(place=p) for p in ("best_fit", "buddy")]) == "reserved_peak_bytes"


def test_programs_are_not_compared_at_shares_of_their_own_needs():
    machines = {"A100": 1.0, "H100": 0.5}
    programs = {"sweep": 1.0, "random": 40.0}
    runs = [
        run(slowdown=slow * fast, trace=trace, profile=profile, memory_share=share, memory=round(GIB * share))
        for trace, slow in programs.items()
        for profile, fast in machines.items()
        for share in (1.0, 0.5)
    ]
    assert (layout(runs).lines, layout(runs).panels) == (("profile",), ("trace",))
    said = answer(runs)
    assert said.startswith("At sweep · 50 % memory: H100 has the lowest makespan, 50 ms; A100 has 100 ms.")
    assert "H100 is best or tied on random as well." in said
    in_bytes = [run(trace=trace, profile=profile) for trace in programs for profile in machines]
    assert layout(in_bytes).lines == ("trace",), "in the same memory they are: a program and its variants"


def test_transforms_are_compared_by_makespan_and_what_they_keep_on_the_host_is_no_axis():
    runs = [
        run(transform=chain, memory=memory * GIB, host_capacity=host * GIB)
        for chain, host in (("none", 512), ("checkpointing | offload", 500))
        for memory in (8, 16)
    ]
    plan = layout(runs)
    assert (plan.across, plan.lines, plan.panels) == ("memory", ("transform",), ())
    assert main_metric(runs) == "makespan_ns"
    assert [line_name(r, plan.lines) for r in runs[1:3]] == ["as recorded", "checkpointing | offload"]
    several = [run(transform=chain, evict=evict) for chain in ("none", "checkpointing") for evict in ("lru", "fifo")]
    assert (layout(several).lines, layout(several).panels) == (("evict",), ("transform",))


def test_values_read_as_people_write_them():
    assert text("memory", 8 * GIB) == "8 GiB" and text("memory_share", 0.6) == "60 %"
    assert text("evict", {"cost_aware": {"staleness": 2}}) == "cost_aware(staleness=2)"
    assert line_name(run("lru", prefetch="next_k"), ("evict", "prefetch")) == "lru + next_k"
    assert (number("60 %"), number("4 GiB"), number("lru"), number(True)) == (0.6, 4 * GIB, None, None)


def test_a_figure_of_single_runs_picks_the_smallest_memory_in_which_half_finish():
    chosen, note = pick(sweep(), 6)
    assert {r.spec["memory"] for r in chosen} == {4 * GIB} and len(chosen) == 5
    assert note == "5 of 20 runs are shown: 4 GiB memory."
    dire = [run(e, 2 * GIB, outcome="oom") for e in ("lru", "clock", "sieve", "random", "belady")]
    assert {r.spec["memory"] for r in pick(sweep() + dire, 6)[0]} == {4 * GIB}


def test_a_report_has_question_answer_table_figures_and_doubts(tmp_path):
    path = write_report(tmp_path, sweep(), "Who wins?", {"traffic": [tmp_path / "figures/t.png", tmp_path / "figures/t.svg"]})
    said = path.read_text()
    assert said.startswith("# Who wins?\n\nAt 4 GiB memory: sieve has the lowest")
    assert "| 4 GiB | **sieve** | **1.60** | 1.00× |" in re.sub(" +", " ", said)
    assert "](figures/t.png)" in said and "[SVG](figures/t.svg)" in said
    assert "None of the 20 runs was recomputed from an event log" in said


def test_the_basis_of_kernel_times_is_said_per_machine():
    def timed(profile, fitted, error=None):
        result = run(profile=profile)
        result.metrics.update(kernel_recorded_share=0.0, kernel_measured_share=fitted, kernel_default_share=1 - fitted)
        result.metrics.update({} if error is None else {"duration_error": error})
        return result

    assert basis([run()]) == ""
    assert basis([timed("a", 0.0), timed("b", 0.0)]) == "Kernel times: all estimated from the vendor's numbers."
    assert basis([timed("a", 0.998)]) == (
        "Kernel times: > 99 % estimated from measurements on this GPU, < 1 % estimated from the vendor's numbers."
    )
    assert basis([timed(p, 0.0) for p in "abcde"] + [timed("f", 0.7, 0.25)]) == (
        "Kernel times: all estimated from the vendor's numbers (a, b and 3 others); "
        "70 % estimated from measurements on this GPU, 30 % estimated from the vendor's numbers (f). "
        "Where they were recorded, the model is off by 25 % (median over kernels)."
    )


def test_doubts_name_wrong_and_unchecked_runs():
    wrong, right = run(), run("fifo")
    object.__setattr__(wrong, "checked", False)
    object.__setattr__(right, "checked", True)
    said = doubts([wrong, right, run("clock")])
    assert said[0].startswith("**1 of 3 runs was contradicted by its own event log**")
    assert said[1].startswith("1 of 3 runs was not recomputed")
    assert "There is nothing to compare." in report([])


def test_the_answer_says_how_much_better_placement_would_have_saved():
    def placed(place, share, swap_outs=0):
        result = run(place=place)
        result.metrics.update(avoidable_share=share, swap_outs=swap_outs)
        return result

    kept = [placed("buddy", 0.25), placed("best_fit", 0.004)]
    assert answer(kept).endswith(
        "Better placement would have saved 0.4 % (best_fit) to 25 % (buddy) of what was reserved at the peak."
    )
    assert answer([placed("buddy", 0.25), placed("best_fit", 0.25, 3)]).endswith(
        "Better placement would have saved at most 25 % of what was reserved at the peak."
    )
    header = markdown(kept).splitlines()[0]
    assert header.index("avoidable [%]") < header.index("makespan")


def test_a_report_that_cannot_be_written_is_one_sentence(tmp_path):
    with pytest.raises(ResultError, match=r"report\.md: cannot write"):
        write_report(tmp_path / "missing", sweep())
