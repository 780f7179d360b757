"""`gpusim calibrate measure` without gpusim's command line: what the zip-app runs, with the standard library's parser."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from gpusim.base.errors import GpusimError


def main(arguments: list[str] | None = None) -> int:
    """The exit code: 0 done, 2 something the user can act on, 130 interrupted."""
    if sys.version_info < (3, 10):  # noqa: UP036 - on a node of a cluster it is what it is
        print(f"gpusim-measure: Python 3.10 or newer is needed, this is {sys.version.split()[0]}", file=sys.stderr)
        return 2
    try:
        from gpusim.calibrate.measure.session import GROUPS, measure
        from gpusim.calibrate.steps import measure as steps
        from gpusim.calibrate.steps import plain
    except ImportError as error:
        print(f"gpusim-measure: {error.name} is not installed (pip install {error.name})", file=sys.stderr)
        return 2

    def say(text: str) -> None:
        print(text, file=sys.stderr, flush=True)

    groups = "\n".join(f"  {name:11} {what}" for name, (_, what) in GROUPS.items())
    parser = argparse.ArgumentParser(
        prog="gpusim-measure",
        description="Measure this machine: GPU, host memory, disk.",
        epilog=f"groups:\n{groups}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("-o", "--output", type=Path, required=True, metavar="FILE", help="a .csv or .json to write")
    parser.add_argument("--quick", action="store_true", help="fewer sizes and repeats: under a minute")
    parser.add_argument("--only", action="append", default=[], metavar="GROUP", help="only this group; repeatable")
    parser.add_argument("--device", type=int, default=0, metavar="N", help="which GPU, as CUDA counts them")
    parser.add_argument("--folder", type=Path, default=Path("."), help="whose disk is measured; default: here")
    parser.add_argument("--force", action="store_true", help="measure a card that is busy or a MIG slice all the same")
    parser.add_argument("--steps", type=Path, metavar="FOLDER", help="also PyTorch's training steps, into this folder")
    given = parser.parse_args(arguments)
    try:
        if given.steps:
            plain.install()
            steps.ready()
        measure(
            given.output,
            given.only,
            quick=given.quick,
            ordinal=given.device,
            force=given.force,
            folder=given.folder,
            say=say,
        )
        if given.steps:
            steps.measure(given.steps, say=say)
    except GpusimError as error:
        print(f"gpusim-measure: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"gpusim-measure: {error.filename or 'output'}: {error.strerror or error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("gpusim-measure: interrupted, nothing was written", file=sys.stderr)
        return 130
    return 0
