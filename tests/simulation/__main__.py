"""The command: ``python -m tests.simulation [--seed N] [--count N]``: one history with its log of events, or many."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.application import Application, Failed
from tests.simulation.history import play, play_all

TOLD = 500
"""Histories between two lines about the progress."""


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
    for number, (seed, ended) in enumerate(zip(seeds, play_all(seeds), strict=True), 1):
        if isinstance(ended, Failed):
            failed.append(seed)
            print(f"FAILED {ended.args[0]}", flush=True)
        else:
            events += ended.cluster.events
        if number % TOLD == 0 or number == len(seeds):
            said = f"{number} of {len(seeds)} histories, {events} events, {len(failed)} failed"
            print(f"{said}, {time.monotonic() - started:.0f} s", flush=True)
    if failed:
        print(f"make sim SEED={failed[0]} replays the first that failed")
    return int(bool(failed))


def _replay(seed: int) -> int:
    application: Application | None = None
    try:
        application = play(seed)
        verdict = "all is well"
    except Failed as error:
        verdict, application = error.args
    if application is not None:
        print(*(line() for line in application.cluster.trace), sep="\n")
    print(verdict)
    return int(verdict != "all is well")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
