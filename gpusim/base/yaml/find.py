"""Names → files: as a path, beside the YAML that names it, in this source checkout, or shipped with the package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from gpusim.base.errors import GpusimError, ProfileError, TraceError, nearest, shown

# kind -> (folder, suffixes a name may omit, what its absence raises)
KINDS: dict[str, tuple[str, tuple[str, ...], type[GpusimError]]] = {
    "profile": ("hardware_profiles", (".yaml", ".yml"), ProfileError),
    "machine": ("hardware_profiles/machines", (".yaml", ".yml"), ProfileError),
    "trace": ("traces", (".npz",), TraceError),
    "program of ranks": ("traces", (".ranks",), TraceError),
    "managed program": ("traces/programs", (".yaml", ".yml"), TraceError),
    "experiment": ("experiments", (".yaml", ".yml"), GpusimError),
    "serving question": ("experiments/serving", (".yaml", ".yml"), GpusimError),
    "expert question": ("experiments/experts", (".yaml", ".yml"), GpusimError),
    "question of many models": ("experiments/models", (".yaml", ".yml"), GpusimError),
    "training question": ("experiments/failures", (".yaml", ".yml"), GpusimError),
    "cluster question": ("experiments/cluster", (".yaml", ".yml"), GpusimError),
}
RUNS = ("trace", "program of ranks", "managed program")  # the kinds that an experiment's `trace` may name

_LONGEST = 255  # bytes of a file's name
_PACKAGE = Path(__file__).resolve().parents[2]


def folders(kind: str) -> list[Path]:
    """Where things of this kind are kept: the checkout when this is one, and what the wheel brought."""
    folder = KINDS[kind][0]
    checkout = _PACKAGE.parent
    places = [checkout / folder] if (checkout / "pyproject.toml").is_file() else []
    return [place for place in (*places, _PACKAGE / "_shipped" / folder) if place.is_dir()]


def names(kind: str) -> list[str]:
    """All names of this kind that `find` knows without a path, sorted."""
    return sorted({_name(path, kind, folder) for folder in folders(kind) for path in _files(folder, kind)})


def find(kind: str, name: str, base: Path | None = None) -> Path:
    """The file that `name` means, as an absolute path; `base` is the folder of the YAML that names it.

    Raises ProfileError, TraceError or GpusimError with the nearest names.
    """
    return _find((kind,), name, base)


def find_run(name: str, base: Path | None = None) -> Path:
    """The recorded trace or the managed program that `name` means, as `find` does.  Raises TraceError."""
    return _find(RUNS, name, base)


def find_machine(name: str, base: Path | None = None) -> Path:
    """The whole machine that `name` means, as `find` does; profiles are among the nearest names.  Raises ProfileError."""
    return _find(("machine", "profile"), name, base)


def is_managed(file: Path) -> bool:
    """Whether this file of an experiment's `trace` is a managed program and no recorded trace."""
    return file.suffix in KINDS["managed program"][1]


def is_of_ranks(file: Path) -> bool:
    """Whether this file of an experiment's `trace` holds the programs of many ranks."""
    return file.suffix in KINDS["program of ranks"][1]


def _find(kinds: tuple[str, ...], name: str, base: Path | None) -> Path:
    kind, error = kinds[0], KINDS[kinds[0]][2]
    suffixes = tuple(suffix for each in kinds for suffix in KINDS[each][1])
    if not name or "\0" in name or any(len(part.encode()) > _LONGEST for part in name.split("/")):
        raise error(f"'{shown(name)}' names no {kind}")
    given = Path(name).expanduser()
    for root in (Path.cwd(), *((base,) if base else ()), *(folder for each in kinds for folder in folders(each))):
        for candidate in (root / given, *(root / f"{given}{suffix}" for suffix in suffixes)):
            if candidate.is_file():
                return Path(candidate).resolve()
    known = [known for each in kinds for known in names(each)]
    word = given.stem if given.suffix in suffixes else name
    machines = names("machine") if kind == "profile" else []  # most of what takes a profile takes these, too
    if word in machines:
        raise error(f"'{word}' is a machine of several GPUs and no profile", hint=f"`gpusim machines {word}` names its GPUs")
    near = nearest(word, [*known, *machines])
    hint = f"did you mean {' or '.join(repr(n) for n in near)}?" if near else _listing(kind, known)
    raise error(f"there is no {kind} '{name}'", hint=hint)


def _listing(kind: str, known: list[str]) -> str:
    if not known:
        return "give the path of a file"
    shown = ", ".join(known[:8]) + (", ..." if len(known) > 8 else "")
    lists = {"profile": "gpusim profiles lists them", "machine": "gpusim machines lists them"}
    return f"{lists.get(kind, 'there are')}: {shown}"


def _files(folder: Path, kind: str) -> Iterator[Path]:
    """Files of this kind; a folder of another kind with the same suffixes is not searched."""
    own, suffixes, _ = KINDS[kind]
    others = {other for other, theirs, _ in KINDS.values() if other.startswith(f"{own}/") and theirs == suffixes}
    apart = {folder / other.removeprefix(f"{own}/") for other in others}
    return (
        path for path in folder.rglob("*")
        if path.suffix in suffixes and path.is_file() and not apart.intersection(path.parents)
    )  # fmt: skip


def _name(path: Path, kind: str, folder: Path) -> str:
    return path.relative_to(folder).with_suffix("").as_posix()
