"""The command: ``python -m tests.simulation [--seed N] [--count N]``: one history with its log of events, or many."""

from __future__ import annotations

import argparse
import sys
import time

from rich.console import Console
from rich.progress import track

from tests.simulation.application import Application
from tests.simulation.history import play


def main(arguments: list[str]) -> int:
    """Plays one seed and prints its log, or many and prints the seeds that fail. Exit code 1 if one did."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("--seed", type=int, help="play this history and print all that happens in it")
    parser.add_argument("--first", type=int, default=0, help="first seed of many")
    parser.add_argument("--count", type=int, default=20_000, help="how many seeds")
    given = parser.parse_args(arguments)
    if given.seed is not None:
        return _replay(given.seed)
    failed = []
    started, events = time.monotonic(), 0
    seeds = range(given.first, given.first + given.count)
    for seed in track(seeds, "histories", console=Console(stderr=True)):
        try:
            events += play(seed).cluster.events
        except AssertionError as error:
            failed.append(seed)
            print(f"FAILED {error.args[0]}", flush=True)
    print(f"{len(seeds)} histories, {events} events, {len(failed)} failed, {time.monotonic() - started:.0f} s")
    if failed:
        print(f"make sim SEED={failed[0]} replays the first that failed")
    return int(bool(failed))


def _replay(seed: int) -> int:
    application: Application | None = None
    try:
        application = play(seed)
        verdict = "all is well"
    except AssertionError as error:
        verdict, application = error.args
    if application is not None:
        print(*(line() for line in application.cluster.trace), sep="\n")
    print(verdict)
    return int(verdict != "all is well")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
