"""What the numbers say, in sentences: the best policy, its lead, ties, where that changes, runs that do not fit."""

from __future__ import annotations

from collections.abc import Sequence

from gpusim.base.text import join
from gpusim.base.units import show_fraction
from gpusim.machine.tenancy import EXCLUSIVE, caution
from gpusim.results.metrics import evicted
from gpusim.results.metrics import metric as declared
from gpusim.results.result import Result
from gpusim.show.interval import with_bars
from gpusim.show.standing import Standing, standings
from gpusim.show.view import (
    ORACLE,
    ending,
    human,
    layout,
    main_metric,
    number,
    text,
    value,
)  # fmt: skip

MOST_REASONS = 3  # programs of which it is said why nothing finishes
MOST_FLIPS = 2  # numbers that would change the best policy, by name


def answer(results: Sequence[Result], metric: str = "", most: int = 0) -> str:
    """A short paragraph; "" when there is nothing to compare.

    most  characters that it may have: whole sentences beyond them are left out; 0 for no limit
    """
    metric = metric or main_metric(results)
    places = standings(results, metric)
    decided = [p for p in places if p.ranking]
    if not decided:
        return _nothing_finished(results)
    if len(decided) == 1 and len(decided[0].ranking) == 1 and not decided[0].oracles and not decided[0].failed:
        return f"{declared(metric).label.capitalize()}: {with_bars(metric, decided[0].ranking[0][1], decided[0].bars)}."
    # The hardest place in which at least half of the competitors finish; the verdict over a lone survivor says little.
    hardest = next((p for p in decided if len(p.ranking) + len(p.oracles) >= len(p.failed)), decided[0])
    sentences = [_verdict(hardest, metric), _not_shared(hardest), _sure(hardest), _against_oracle(hardest, metric)]
    sentences.append(_along([p for p in decided if p.panel == hardest.panel], hardest))
    sentences.append(_elsewhere(decided, hardest))
    failures = _failures(places)
    if failures and hardest.along and layout(results).lines == ("place",):  # of an allocator one asks first what fits
        sentences.insert(0, failures)
    else:
        sentences.append(failures)
    sentences.append(_avoidable(results))
    sentences += [f"{said[0].upper()}{said[1:]}." for said in _cautions(results)]
    said = ""
    for sentence in filter(None, sentences):
        if not most or not said or len(said) + len(sentence) < most:
            said = f"{said} {sentence}".strip()
    return said


def _nothing_finished(results: Sequence[Result]) -> str:
    """How the runs end, and what would help those of each program; "" when there are none, or nothing was measured."""
    failed = [r for r in results if not r.finished]
    if not failed:
        return ""
    largest: dict[str, Result] = {}  # of each program the run with most memory: the others lack no less
    for r in failed:
        program = str(r.spec.get("trace"))
        if program not in largest or (number(r.spec.get("memory")) or 0) > (number(largest[program].spec.get("memory")) or 0):
            largest[program] = r
    told = []
    for program, r in largest.items():
        said = str((r.failure or {}).get("advice", "")).rstrip(".")
        if said:
            told.append(f"{program}: {said}." if len(largest) > 1 else f"{said[0].upper()}{said[1:]}.")
    return " ".join([f"No run finished: {join(sorted({ending(r) for r in failed}))}.", *told[:MOST_REASONS]])


def _cautions(results: Sequence[Result]) -> list[str]:
    """What is known to be wrong by much with a way to share a GPU that is compared."""
    ways = dict.fromkeys(str(r.spec.get("tenancy", "")) for r in results)
    return [said for text in ways if text and (said := caution(text))]


def _verdict(place: Standing, metric: str) -> str:
    """The best here, and the distance of the others."""
    names, best = place.winners, with_bars(metric, place.ranking[0][1], place.bars)
    rest = [(n, v) for n, v in place.ranking if n not in names]
    label = declared(metric).label
    start = f"At {place.where}: " if place.where else ""
    if len(names) == len(place.ranking) > 1:
        return f"{start}{_few(names)} tie, {label} {best}."
    best_of = {"lower": "lowest", "higher": "highest"}[place.better]
    lead = f"{start}{_few(names)} {'tie for' if len(names) > 1 else 'has'} the {best_of} {label}, {best}"
    if not rest:
        return lead + "."
    if len(rest) > 3:
        (near, v), (far, w) = rest[0], rest[-1]
        return f"{lead}; next is {near} with {human(metric, v)}, last is {far} with {human(metric, w)}."
    alike: dict[str, list[str]] = {}  # those that read the same are named together
    for n, v in rest:
        alike.setdefault(human(metric, v), []).append(n)
    return f"{lead}; " + join([f"{join(ns)} {_have(ns)} {v}" for v, ns in alike.items()]) + "."


def _not_shared(place: Standing) -> str:
    """What the best has that the others have not, where ways to share a GPU are compared."""
    first = {name for name in place.winners if EXCLUSIVE in name.split(" + ")}
    return f"{EXCLUSIVE} is a GPU for each program, the others share one." if first and len(first) < len(place.ranking) else ""


def sureness(results: Sequence[Result]) -> list[str]:
    """Where the sampled machines do not all say the same, or one number would change the best: a sentence per place."""
    places = [p for p in standings(results) if len(p.ranking) > 1]
    doubtful = [p for p in places if p.turns or p.flips or p.broken or p.held < p.samples]
    return [f"{p.where}: {words}" if p.where else words for p in doubtful if (words := _sure(p))]


def _sure(place: Standing) -> str:
    """Whether that holds on the sampled machines, and what would change it."""
    if not place.samples:
        return ""
    best, sampled = place.ranking[0][0], f"{place.samples} sampled machines"
    words = []
    if place.turns:
        words.append(f"On {sampled} {_few([best, *place.turns])} take turns.")
    elif len(place.winners) < len(place.ranking):
        words.append(f"{best} is best or tied on {'all' if place.held == place.samples else f'{place.held} of'} {sampled}.")
    words += [f"{name} does not finish on {count} of {sampled}." for name, count in place.broken.items()]
    for push, names in list(place.flips.items())[:MOST_FLIPS]:
        words.append(f"With {push.path} of {push.profile} at {push.at} instead of {push.instead}, {_few(names)} would be best.")
    if len(place.flips) > MOST_FLIPS:
        words.append(f"So would {len(place.flips) - MOST_FLIPS} more numbers change which is best.")
    return " ".join(words)


def _against_oracle(place: Standing, metric: str) -> str:
    if not place.oracles:
        return ""
    name, value = place.oracles[0]
    return f"{name}{ORACLE}, which reads the future, has {human(metric, value)}."


def _along(places: Sequence[Standing], hardest: Standing) -> str:
    """On the same machine and program: where along the axis others win."""
    rest = [p for p in places if p is not hardest and len(p.ranking) > 1]
    if not rest:
        return ""
    if all(len(p.winners) == len(p.ranking) for p in rest):
        return "Elsewhere all tie."
    other = [p for p in rest if not set(hardest.winners) & set(p.winners)]
    if not other:
        best = [n for n in hardest.winners if all(n in p.winners for p in rest)]
        where = f"at every size on {hardest.panel}" if hardest.panel else "everywhere"
        return f"{_few(best)} {_are(best)} best or tied {where}." if best else ""
    changes = [f"at {p.along} {_few(p.winners)} {_are(p.winners)} ahead" for p in other[:2]]
    left = len(other) - 2
    more = f" (and {left} more {'size' if left == 1 else 'sizes'})" if left > 0 else ""
    return f"That changes: {join(changes)}{more}."


def _elsewhere(decided: Sequence[Standing], hardest: Standing) -> str:
    """On the other machines and programs, at the hardest place of each."""
    first: dict[str, Standing] = {}
    for p in decided:
        if p.panel != hardest.panel and len(p.ranking) > 1 and p.along == hardest.along:
            first.setdefault(p.panel, p)
    alike: dict[tuple[str, ...], list[str]] = {}  # those of the best here that are best there, too
    for p in first.values():
        alike.setdefault(tuple(n for n in hardest.winners if n in p.winners), []).append(p.panel)
    differ = [p for p in first.values() if p.panel in alike.get((), ())]
    ahead: dict[tuple[str, ...], list[str]] = {}  # where the same are ahead is said once
    for p in differ[:3]:
        ahead.setdefault(p.winners, []).append(p.panel)
    told = [f"{_few(names)} {_are(names)} best or tied on {_few(panels)} as well." for names, panels in alike.items() if names]
    told += [f"{_few(names)} {_are(names)} ahead on {join(panels)}." for names, panels in ahead.items()]
    if len(differ) > 3:
        told.append(f"Others are ahead in {len(differ) - 3} more places.")
    return " ".join(told)


def _avoidable(results: Sequence[Result]) -> str:
    """How much of the reserved peak better placement would have saved: least and most over the runs, by allocator."""
    shares = {i: v for i, r in enumerate(results) if (v := value(r, "avoidable_share")) is not None}
    if not shares:
        return ""
    runs = [results[i] for i in (min(shares, key=shares.__getitem__), max(shares, key=shares.__getitem__))]
    keys = [key for key in layout(results).lines if key == "place"]
    found = [show_fraction(share, 2) for share in (min(shares.values()), max(shares.values()))]
    if keys and found[0] != found[1]:
        found = [f"{share} ({text('place', r.spec['place'])})" for share, r in zip(found, runs, strict=True)]
    most = "at most " * any(evicted(results[i].metrics) for i in shares)
    share = most + " to ".join(dict.fromkeys(found))
    return f"Better placement would have saved {share} of what was reserved at the peak."


def _few(names: Sequence[str]) -> str:
    """At most three by name."""
    return join(names) if len(names) <= 3 else join([*names[:2], f"{len(names) - 2} others"])


def _failures(places: Sequence[Standing]) -> str:
    """What fails: by the memory (or other number) that each needs to finish, or by name where no number varies."""
    panels: dict[str, list[Standing]] = {}
    for p in places:
        if p.failed or p.along:
            panels.setdefault(p.panel, []).append(p)
    sentences = []
    for panel, there in panels.items():
        on = f" on {panel}" if panel else ""
        if there[0].along and any(p.failed for p in there):
            sentences.append(_needs(there, on))
        elif not there[0].along:
            how: dict[str, list[str]] = {}
            for name, ending in there[0].failed:
                how.setdefault(ending, []).append(name)
            sentences += [f"{_few(names)} {_ends(ending, names)}{on}." for ending, names in how.items()]
    left = len(sentences) - 3
    more = f" {left} more {'place has' if left == 1 else 'places have'} failures." if left > 0 else ""
    return " ".join(sentences[:3]) + more


def _needs(places: Sequence[Standing], on: str) -> str:
    """The smallest size from which on each finishes; `places` are in rising order of size."""
    least: dict[str, str] = {}
    for p in reversed(places):
        for name in p.finished:
            if name not in {n for q in places[places.index(p) :] for n, _ in q.failed}:
                least[name] = p.along
    never = list(dict.fromkeys(n for p in places for n, _ in p.failed if n not in least))
    sizes: dict[str, list[str]] = {}
    for p in places:
        for name, along in least.items():
            if along == p.along:
                sizes.setdefault(along, []).append(name)
    if len(sizes) == 1 and not never:
        return f"To finish{on}, all need {next(iter(sizes))}."
    parts = [f"{_few(sorted(n))} {'needs' if len(n) == 1 else 'need'} {size}" for size, n in sizes.items()]
    if never:
        parts.append(f"{_few(never)} never {'does' if len(never) == 1 else 'do'}")
    return f"To finish{on}, {'; '.join(parts)}."


def _ends(how: str, names: Sequence[str]) -> str:
    words = {"out of memory": "out of memory", "host out of memory": "out of host memory"}.get(how)
    if how.endswith(" full"):
        return f"{'finds' if len(names) == 1 else 'find'} the {how}"
    return f"{'runs' if len(names) == 1 else 'run'} {words}" if words else how


def _have(names: Sequence[str]) -> str:
    return "has" if len(names) == 1 else "have"


def _are(names: Sequence[str]) -> str:
    return "is" if len(names) == 1 else "are"
