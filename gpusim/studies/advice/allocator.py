"""What the OOM doctor proposes: settings of the allocator and changes of the program, with their times where they are known."""

from __future__ import annotations

from dataclasses import replace

from gpusim.base.errors import TraceError
from gpusim.base.units import show_bytes
from gpusim.machine.profile import Profile
from gpusim.policies.trials.allocator_replay import ENDLESS
from gpusim.studies.advice import lines
from gpusim.studies.advice.answer import OOM, NotTried, Proposal, Tools
from gpusim.studies.advice.machine import AdviceRequest, under
from gpusim.studies.capacity.settings import AllocatorSettings
from gpusim.studies.fragmentation import candidates, doctor
from gpusim.studies.fragmentation.answer import OomAnswer, Remedy
from gpusim.studies.fragmentation.baseline import SettingOutcome
from gpusim.studies.fragmentation.programs import TRANSFORMS
from gpusim.studies.fragmentation.remedies import MODELLED, WORTH
from gpusim.studies.fragmentation.study import FragmentationStudy, study
from gpusim.trace.trace import OOM as FAILED
from gpusim.trace.trace import Trace


def examined(traces: dict[int, Trace], chosen: int, room: int | None) -> tuple[FragmentationStudy, OomAnswer, str]:
    """The doctor's study of one device, its answer with what the others add, and what is to be said of its limit."""
    trace, said = traces[chosen], ""
    try:
        found = study(trace, candidates.default(trace), room)
    except TraceError as error:
        if room is None or "more than a capacity" not in error.message:
            raise
        found = study(trace, candidates.default(trace), None)
        said = f"{error.message}: settings are compared on the device that it ran on, and those that fit are named."
    return found, doctor.with_others(found.answer, traces, chosen), said


def proposed(
    found: FragmentationStudy, answer: OomAnswer, profile: Profile | None, asked: AdviceRequest, fits: bool | None
) -> Tools:
    """The doctor's advice; `fits`: whether the program fits the machine as it is, None without one."""
    made, helpless, untried = list[Proposal](), list[NotTried](), list[NotTried]()
    if answer.refusal:
        return Tools(untried=[NotTried("settings of the allocator", answer.refusal)])
    advised = {remedy.setting: remedy for remedy in answer.advice if remedy.kind == "setting"}
    for outcome in found.tried:
        conf = str(dict(outcome.candidate.params).get("conf", ""))
        if outcome.candidate == found.base.own or outcome.candidate.place != MODELLED:
            continue
        result = _setting(found, outcome, advised.get(conf), profile, asked, fits)
        if isinstance(result, Proposal):
            made.append(result)
        else:
            helpless.append(NotTried(conf or "default settings", result))
    for remedy in answer.advice:
        if remedy.kind == "program" and remedy.setting not in TRANSFORMS.values():  # those are simulated with their times
            made.append(_change(remedy))
    return Tools(made, helpless, untried, _remarks(found))


def _setting(
    found: FragmentationStudy, outcome: SettingOutcome, advised: Remedy | None, profile: Profile | None, asked: AdviceRequest,
    fits: bool | None,
) -> Proposal | str:  # fmt: skip
    """A setting that the doctor advises, or with which the program fits a machine that it does not fit as it is."""
    conf = str(dict(outcome.candidate.params).get("conf", ""))
    failed = bool((found.base.trace.kind == FAILED).any())  # then the doctor alone knows what the device had
    wanted = advised is not None or (fits is False and not failed and outcome.fits)
    if not wanted:
        return _why_not(found, outcome)
    timed = under(found.base.trace, profile, conf, asked) if profile else None
    if isinstance(timed, str) and not (advised is not None and failed):
        return f"it does not fit {profile.name if profile else ''}: {timed}"
    if advised is None and profile is not None and outcome.held[1] > AllocatorSettings(conf, asked.context).room(profile):
        return "whether it fits depends on what was cached before the recording"
    made = Proposal(
        OOM, conf or "default settings", lines.setting(conf), "none", conf, held=outcome.held, saves=outcome.saving,
        machine=profile.name if profile else "",
    )  # fmt: skip
    if timed is None or isinstance(timed, str):
        return made
    return replace(made, step_ns=timed.step_ns, step=timed.step, slowdown=timed.slowdown, price=timed.price)


def _why_not(found: FragmentationStudy, outcome: SettingOutcome) -> str:
    if not outcome.fits:
        return "a request fails" if not outcome.open else "whether a request fails depends on what was cached before"
    least, most = outcome.saving
    if most <= 0:
        return f"it holds {show_bytes(-least)} more" if least else "it holds as much"
    of = "the device" if found.answer.device < ENDLESS else "what is held"
    saved = show_bytes(least) if least == most else f"{show_bytes(max(0, least))} to {show_bytes(most)}"
    return f"it saves {saved}: less than {100 * WORTH:.0f} % of {of}{'' if least == most else ', perhaps'}"


def _change(remedy: Remedy) -> Proposal:
    note = "what the calls cost in time is not simulated" if "empty_cache" in remedy.setting else "its time is not simulated"
    return Proposal(
        OOM, remedy.setting, remedy.setting, note=note, held=(remedy.low, remedy.high),
        saves=(remedy.saves, remedy.saves), fits=remedy.serves,
    )  # fmt: skip


def _remarks(found: FragmentationStudy) -> list[str]:
    """What savings are against."""
    exact = "The recorded setting of the allocator, replayed from the recorded start, gives what was recorded."
    return [f"{found.base.assumed or exact} Savings are against that."]
