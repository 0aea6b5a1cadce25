"""The command: ``python -m tests.conformance [--engine driver|spark|live] [--mode compat|strict] FILE|FOLDER...``."""

from __future__ import annotations

import argparse
import sys
import time
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
    parser.add_argument("--by-family", action="store_true", help="also print the numbers of each family; live does")
    parser.add_argument("--names", action="store_true", help="of failures, print the names only")
    parser.add_argument("--group", type=int, default=24, help="live: how many cases are one application")
    parser.add_argument("paths", nargs="+", type=Path, metavar="FILE|FOLDER")
    given = parser.parse_args(arguments)
    if missing := [str(path) for path in given.paths if not path.exists()]:
        parser.error(f"no such file or folder: {', '.join(missing)}")
    cases = [case for case in read_cases(given.paths) if given.only in case.name]
    told = _Told()
    found = _live(cases, given, told) if given.engine == LIVE else _each(cases, given)
    for case, problem in track(found, "cases", len(cases), console=Console(stderr=True)):
        told.count(case, "failed" if problem else "passed")
        if problem:
            print(f"FAILED {case.name}" + ("" if given.names else f"\n{problem}\n"), flush=True)
    if given.by_family or given.engine == LIVE:
        told.print_families()
    passed, failed = told.total("passed"), told.total("failed")
    print(f"{passed} passed, {failed} failed")
    return 2 if not passed and not failed else int(bool(failed))


class _Told:
    """What became of the cases, by family and outcome."""

    def __init__(self) -> None:
        self._counted: dict[str, Counter[str]] = {}

    def count(self, case: Case, outcome: str) -> None:
        # A strict case that is restarted has the name of the other case in brackets.
        family = case.name.partition(" (")[0].rpartition("/")[0]
        self._counted.setdefault(family, Counter())[outcome] += 1

    def total(self, outcome: str) -> int:
        return sum(counts[outcome] for counts in self._counted.values())

    def print_families(self) -> None:
        outcomes = [one for one in ("passed", "failed", "not run") if self.total(one)]
        width = max(map(len, self._counted), default=0)
        print(" ".join([f"{'family':{width}}", *(f"{one:>8}" for one in outcomes)]))
        for family, counts in sorted(self._counted.items()):
            print(" ".join([f"{family:{width}}", *(f"{counts[one]:8}" for one in outcomes)]))


def _each(cases: Sequence[Case], given: argparse.Namespace) -> Iterator[tuple[Case, str]]:
    for case in cases:
        yield case, problem_of(case, given.engine, case.mode or given.mode)


def _live(cases: Sequence[Case], given: argparse.Namespace, told: _Told) -> Iterator[tuple[Case, str]]:
    """Runs what can run live, and says how many cannot, and why."""
    from tests.conformance.live_cases import groups_of, why_not
    from tests.conformance.spark_engine import run_live

    reasons = {case.name: why_not(case, case.mode or given.mode) for case in cases}
    groups = [
        (mode, together)
        for mode in ("compat", "strict")
        for together in groups_of(
            [case for case in cases if (case.mode or given.mode) == mode and reasons[case.name] is None], given.group
        )
    ]
    for number, (mode, together) in enumerate(groups, 1):
        began = time.monotonic()
        found = list(run_live(together, mode))
        failed = sum(bool(problem) for _, problem in found)
        print(
            f"application {number} of {len(groups)}, {mode}, from {together[0].name}: {len(found) - failed} passed, "
            f"{failed} failed, {time.monotonic() - began:.0f} s",
            flush=True,
        )
        yield from found
    for case in cases:
        if reasons[case.name] is not None:
            told.count(case, "not run")
    for why, count in Counter(filter(None, reasons.values())).most_common():
        print(f"{count} not run: {why}")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
