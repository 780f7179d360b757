"""Which experts tokens chose, layer by layer: recorded, in a file, or drawn from a stated skew.

    drawn(skew=1, sticky=0, follow=0, topics=1, sequences=8, prompt=64, output=64, seed=0)
    drawn(popularity=mixtral-8x7b, sticky=0.15)

The k-th expert of a layer, in an order of its own, is chosen with a probability in proportion to 1 / k**skew; a token's experts
differ.  `popularity`: in proportion to how often the expert of that layer was chosen in a model that ran
(`data/popularity.csv`).  `sticky`: so often a token takes what the token before it has taken in this layer; `follow`: else so
often what a fixed permutation makes of its choice in the layer before; `topics`: so many orders there are, of which each
sequence has one.

A file is text, gzipped or not:

    gpusim routing 1
    experts=8 layers=4 chosen=2 source=tiny_moe.py, seed 0
    0 p 3,5 1,2 0,7 4,6
    0 d 3,1 1,2 0,7 4,6 > 1,0 0,7 4,6

A line is a token: its sequence, `p` where it is of the prompt and `d` where it was decoded, and for each layer with experts its
choices.  Behind `>` stand guesses of the layers from the second on, where the recorder has some.  Tokens of a
sequence are in order, those of its prompt first, sequences one after the other.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt

from gpusim.base.calls import split
from gpusim.base.errors import GpusimError, TraceError, suggest
from gpusim.base.files import write_atomic
from gpusim.base.yaml import find

F64 = npt.NDArray[np.float64]
I16 = npt.NDArray[np.int16]
I32 = npt.NDArray[np.int32]

POPULARITY = Path(__file__).parent / "data" / "popularity.csv"
HEAD = "gpusim routing 1"
MOST = 10**8
"""Choices of experts in one routing."""
DRAWN = {"skew": 1.0, "sticky": 0.0, "follow": 0.0, "topics": 1, "sequences": 8, "prompt": 64, "output": 64, "seed": 0}
_SHARES = ("sticky", "follow")
_LEAST = {"topics": 1, "sequences": 1, "output": 1}


@dataclass(frozen=True, eq=False)
class ExpertRouting:
    """Choices of n tokens.

    experts   of a layer
    choices   per part of the model, encoder before decoder: (n, layers with experts, chosen)
    sequence  per part (n,) of which sequence each token is, from 0 on
    decoded   per part (n,) whether it was decoded, or is of the prompt
    guesses   (n, layers - 1, guessed) of the last part, for its second layer and on; None: there are none
    source    how they came about; recorded: by a model that ran
    """

    experts: int
    choices: tuple[I16, ...]
    sequence: tuple[I32, ...]
    decoded: tuple[npt.NDArray[np.bool_], ...]
    guesses: I16 | None
    source: str
    recorded: bool

    @property
    def sequences(self) -> int:
        """How many."""
        return 1 + int(self.sequence[-1].max())


def routing_of(word: str, layers: tuple[int, ...], experts: int, chosen: int) -> ExpertRouting:
    """Drawn for a model of these layers with experts per part, or from a file of such a model, or a shipped one by its name.

    Raises GpusimError; TraceError with file:line.
    """
    if word.strip().startswith("drawn"):
        return drawn(word, layers, experts, chosen)
    shipped = [folder / "routing" / f"{word}.txt.gz" for folder in find.folders("trace")]
    found = read(next((path for path in (Path(word), *shipped) if path.is_file()), Path(word)))
    if len(layers) > 1:
        raise TraceError("it has the routing of a decoder, and the model has an encoder", word, hint="drawn(skew=1)")
    shape = (found.choices[0].shape[1], found.experts, found.choices[0].shape[2])
    if shape != (layers[0], experts, chosen):
        said = "it is of {} layers with {} experts, {} chosen; the model has {}, {} and {}"
        raise TraceError(said.format(*shape, layers[0], experts, chosen), word, hint="record that model, or drawn(skew=1)")
    return found


def drawn(word: str, layers: tuple[int, ...], experts: int, chosen: int) -> ExpertRouting:
    """What the word says; see the module.  Raises GpusimError."""
    numbers, popularity = _numbers(word)
    known = _popularity(popularity, layers, experts) if popularity else None
    count, prompt, output = (int(numbers[key]) for key in ("sequences", "prompt", "output"))
    if count * (prompt + output) * max(layers) * chosen > MOST:
        raise GpusimError(f"'{word}' draws more than {MOST:,} choices", hint="fewer sequences, or shorter ones")
    rng = np.random.default_rng(int(numbers["seed"]))
    two = len(layers) > 1  # the prompt goes through the encoder, what is decoded through the decoder
    spans = [(prompt, 0), (0, output)] if two else [(prompt, output)]
    choices, sequence, decoded = [], [], []
    for part, (plain, after) in zip(layers, spans, strict=True):
        sequence.append(np.repeat(np.arange(count, dtype=np.int32), plain + after))
        decoded.append(np.tile(np.arange(plain + after) >= plain, count))
        choices.append(_draw(rng, numbers, sequence[-1], part, experts, chosen, known))
    return ExpertRouting(experts, tuple(choices), tuple(sequence), tuple(decoded), None, word, recorded=False)


def _numbers(word: str) -> tuple[dict[str, float], str]:
    """Its numbers, and whose popularity it has, if that is said."""
    name, texts = split(word, "a routing")
    if name != "drawn":
        raise GpusimError(f"'{word}' is no routing", hint="a file, or drawn(skew=1, sticky=0.2)")
    numbers: dict[str, float] = dict(DRAWN)
    popularity = texts.pop("popularity", "")
    if popularity and {"skew", "topics"} & set(texts):
        raise GpusimError("popularity that was counted has no skew and no topics of its own", hint="leave these out")
    for key, text in texts.items():
        if key not in numbers:
            raise GpusimError(f"a drawn routing has no '{key}'", hint=suggest(key, DRAWN) or ", ".join(DRAWN))
        try:
            numbers[key] = float(text)
        except ValueError:
            raise GpusimError(f"'{text}' is no number for {key}", hint=f"write {key}={DRAWN[key]:g}") from None
        least, most = _LEAST.get(key, 0), 1.0 if key in _SHARES else 10**7
        if not least <= numbers[key] <= most:
            raise GpusimError(f"a drawn routing cannot have {key}={text}", hint=f"from {least} to {most:g}")
    return numbers, popularity


def _popularity(model: str, layers: tuple[int, ...], experts: int) -> F64:
    """(layers, experts) log of how often each expert was chosen.  Raises GpusimError for a model without."""
    with POPULARITY.open(encoding="utf-8") as file:
        rows = list(csv.reader(line for line in file if not line.startswith("#")))[1:]
    found = np.array([row[2:] for row in rows if row[0] == model], np.float64)
    if not len(found):
        known = tuple(dict.fromkeys(row[0] for row in rows))
        raise GpusimError(f"no popularity of experts was counted for '{model}'", hint=suggest(model, known) or ", ".join(known))
    if found.shape != (sum(layers), experts):
        said = f"the popularity of {model} is of {found.shape[0]} layers with {found.shape[1]} experts"
        raise GpusimError(f"{said}; the model has {sum(layers)} and {experts}", hint="drawn(skew=1)")
    return np.asarray(np.log(found))


def _draw(
    rng: np.random.Generator, numbers: dict[str, float], sequence: I32, layers: int, experts: int, chosen: int,
    popularity: F64 | None,
) -> I16:  # fmt: skip
    n, topics = len(sequence), int(numbers["topics"])
    of = rng.integers(0, topics, int(sequence[-1]) + 1)[sequence] if n else sequence
    first = np.flatnonzero(np.concatenate([[True], sequence[1:] != sequence[:-1]])) if n else sequence
    made = np.zeros((n, layers, chosen), np.int16)
    for layer in range(layers):
        weight = np.empty((topics, experts))
        for topic in range(topics):
            weight[topic, rng.permutation(experts)] = -numbers["skew"] * np.log(np.arange(1.0, experts + 1))
        if popularity is not None:
            weight[:] = popularity[layer]
        made[:, layer] = np.argpartition(-(weight[of] + rng.gumbel(size=(n, experts))), chosen - 1, axis=1)[:, :chosen]
        if layer:
            follows = rng.random(n) < numbers["follow"]
            made[follows, layer] = rng.permutation(experts)[made[follows, layer - 1]]
        fresh = rng.random(n) >= numbers["sticky"]
        fresh[first] = True
        made[:, layer] = made[np.maximum.accumulate(np.where(fresh, np.arange(n), 0)), layer]
    return made


def read(path: Path) -> ExpertRouting:
    """The routing of a file.  Raises TraceError with file:line."""
    try:
        with gzip.open(path, "rt", encoding="utf-8") if path.suffix == ".gz" else path.open(encoding="utf-8") as file:
            lines = file.read().splitlines()
    except (OSError, UnicodeDecodeError, EOFError) as error:
        if isinstance(error, FileNotFoundError):
            raise TraceError(f"there is no file of a routing '{path}'", hint="drawn(skew=1), or tiny-moe") from None
        raise TraceError(f"cannot be read: {error}", str(path)) from None
    if not lines or lines[0].strip() != HEAD:
        raise TraceError("it does not begin with the head of a routing", f"{path}:1", f"its first line is '{HEAD}'")
    experts, layers, chosen, source = _second(lines[1] if len(lines) > 1 else "", f"{path}:2")
    choices, guesses, sequence, decoded = [], [], [], []
    for number, line in enumerate(lines[2:], 3):
        if not line.strip():
            continue
        where = f"{path}:{number}"
        token, _, guessed = line.partition(">")
        words = token.split()
        if len(words) != 2 + layers or not words[0].isdecimal() or words[1] not in ("p", "d"):
            raise TraceError(f"a token is its sequence, p or d, and the choices of {layers} layers", where, f"'{line[:60]}'")
        sequence.append(int(words[0]))
        decoded.append(words[1] == "d")
        _order(sequence, decoded, where)
        choices.append([_experts(word, experts, where, chosen) for word in words[2:]])
        if guessed.split():
            guesses.append([_experts(word, experts, where) for word in guessed.split()])
            if len(guesses[-1]) != layers - 1:
                raise TraceError(f"it has guesses of {len(guesses[-1])} layers, not of {layers - 1}", where)
        if guesses and (len(guesses) != len(choices) or {len(one) for one in guesses[-1]} != {len(guesses[0][0])}):
            raise TraceError("all tokens have guesses, of equally many experts, or none has", where)
    if not choices:
        raise TraceError("it has no token", str(path))
    rows = np.array(sequence, np.int32)
    return ExpertRouting(
        experts, (np.array(choices, np.int16),), (rows,), (np.array(decoded, np.bool_),),
        np.array(guesses, np.int16) if guesses else None, source, recorded=True,
    )  # fmt: skip


def _second(line: str, where: str) -> tuple[int, int, int, str]:
    facts, _, source = line.partition("source=")
    given = dict(word.partition("=")[::2] for word in facts.split())
    for key in ("experts", "layers", "chosen"):
        if not given.get(key, "").isdecimal() or not 0 < int(given[key]) < 2**15:
            raise TraceError(f"it does not say how many {key} there are", where, "experts=8 layers=4 chosen=2 source=...")
    experts, layers, chosen = (int(given[key]) for key in ("experts", "layers", "chosen"))
    if chosen > experts:
        raise TraceError(f"of {experts} experts no {chosen} can be chosen", where)
    return experts, layers, chosen, source.strip()


def _order(sequence: list[int], decoded: list[bool], where: str) -> None:
    last = sequence[-2] if len(sequence) > 1 else -1
    if sequence[-1] not in (last, last + 1):
        raise TraceError(f"sequence {sequence[-1]} stands behind {last}" if last >= 0 else "sequences begin with 0", where)
    if sequence[-1] == last and decoded[-2] and not decoded[-1]:
        raise TraceError("a token of the prompt stands behind one that was decoded", where)


def _experts(word: str, experts: int, where: str, wanted: int = 0) -> list[int]:
    texts = word.split(",")
    if not all(text.isdecimal() and int(text) < experts for text in texts):
        raise TraceError(f"'{word}' names no experts from 0 to {experts - 1}", where)
    found = [int(text) for text in texts]
    if len(set(found)) != len(found) or (wanted and len(found) != wanted):
        raise TraceError(f"'{word}' does not name {wanted or len(found)} different experts", where)
    return found


def write(routing: ExpertRouting, path: Path) -> None:
    """The file of a decoder's routing, the same bytes for the same routing; gzipped where its name ends so."""
    choices, guesses = routing.choices[0], routing.guesses
    lines = [HEAD, f"experts={routing.experts} layers={choices.shape[1]} chosen={choices.shape[2]} source={routing.source}"]
    name: Callable[[I16], str] = lambda rows: " ".join(",".join(map(str, one)) for one in rows.tolist())  # noqa: E731
    for i, token in enumerate(choices):
        kind = "d" if routing.decoded[0][i] else "p"
        guessed = "" if guesses is None else f" > {name(guesses[i])}"
        lines.append(f"{routing.sequence[0][i]} {kind} {name(token)}{guessed}")
    data = ("\n".join(lines) + "\n").encode()
    write_atomic(path, lambda out: out.write(gzip.compress(data, mtime=0) if path.suffix == ".gz" else data))
