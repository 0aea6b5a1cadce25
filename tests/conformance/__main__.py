"""The command: ``python -m tests.conformance [--engine driver|spark|live] [--mode compat|strict] FILE|FOLDER...``."""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

from rich.console import Console
from rich.progress import track

from tests.conformance.case import Case, read_cases
from tests.conformance.runner import ENGINES, problem_of

LIVE = "live"
"""The engine that runs many cases in one application."""


def main(arguments: list[str]) -> int:
    """Run, print every failure and, last, the numbers. Exit code 1 if a case failed, 2 if there was none."""
    parser = argparse.ArgumentParser(prog="python -m tests.conformance", description=__doc__)
    parser.add_argument("--engine", choices=[*sorted(ENGINES), LIVE], default="driver")
    parser.add_argument(
        "--mode", choices=["compat", "strict"], default="compat", help="of the cases that do not say theirs"
    )
    parser.add_argument("--only", default="", help="run the cases whose name contains this text")
    parser.add_argument("--by-family", action="store_true", help="also print the numbers of each family")
    parser.add_argument("--names", action="store_true", help="of failures, print the names only")
    parser.add_argument("--group", type=int, default=24, help="live: how many cases are one application")
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|FOLDER")
    given = parser.parse_args(arguments)
    if missing := [str(path) for path in given.paths if not path.exists()]:
        parser.error(f"no such file or folder: {', '.join(missing)}")
    passed: Counter[str] = Counter()
    failed: Counter[str] = Counter()
    cases = [case for case in read_cases(given.paths) if given.only in case.name]
    found = _live(cases, given) if given.engine == LIVE else _each(cases, given)
    for case, problem in track(found, "cases", len(cases), console=Console(stderr=True)):
        family = case.name.rpartition("/")[0]
        (failed if problem else passed)[family] += 1
        if problem:
            print(f"FAILED {case.name}" + ("" if given.names else f"\n{problem}\n"))
    if given.by_family:
        for family in sorted(passed | failed):
            print(f"{family}: {passed[family]} passed, {failed[family]} failed")
    print(f"{passed.total()} passed, {failed.total()} failed")
    return 2 if not passed and not failed else int(bool(failed))


def _each(cases: Sequence[Case], given: argparse.Namespace) -> Iterator[tuple[Case, str]]:
    for case in cases:
        yield case, problem_of(case, given.engine, case.mode or given.mode)


def _live(cases: Sequence[Case], given: argparse.Namespace) -> Iterator[tuple[Case, str]]:
    """Runs what can run live, and says how many cannot, and why."""
    from tests.conformance.live_cases import why_not
    from tests.conformance.spark_engine import run_live

    reasons = {case.name: why_not(case, case.mode or given.mode) for case in cases}
    for mode in ("compat", "strict"):
        mine = [case for case in cases if (case.mode or given.mode) == mode and reasons[case.name] is None]
        yield from run_live(mine, mode, given.group)
    for why, count in Counter(filter(None, reasons.values())).most_common():
        print(f"{count} not run: {why}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
