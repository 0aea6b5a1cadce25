"""`make chaos SEED=n MINUTES=n`: the engine under random faults, verified. Needs only Java and the broker's jars.

python -m tests.chaos --seed 7 --minutes 10
"""

from __future__ import annotations

import random
import tempfile
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from tests.chaos.blows import WEIGHTS
from tests.chaos.drill import run_drill


def main(
    seed: Annotated[
        int | None, typer.Option(help="The seed of the blows; default: a new one, which is printed.")
    ] = None,
    minutes: Annotated[float, typer.Option(min=0.1, help="How long blows fall.")] = 5,
    only: Annotated[list[str] | None, typer.Option(help="Only this blow; may be given several times.")] = None,
    away: Annotated[float, typer.Option(min=1, help="Seconds that broker or network may be away at most.")] = 30,
    keep: Annotated[bool, typer.Option("--keep", help="Leave logs and state for a look around.")] = False,
) -> None:
    """Run a join and a windowed aggregation under random faults; exit code 0 only if all results are exact.

    Exit code 3: the broker itself has left a transaction hanging, so the run proves nothing; use another seed.
    """
    known = {blow.__name__: blow for blow in WEIGHTS}
    if unknown := set(only or ()) - set(known):
        raise typer.BadParameter(f"no such blow: {', '.join(sorted(unknown))}; there are: {', '.join(known)}")
    folder = Path(tempfile.mkdtemp(prefix="streams-chaos-"))
    seed = random.SystemRandom().randrange(1_000_000) if seed is None else seed
    blows = [known[name] for name in only or known]
    verdict = run_drill(seed, minutes * 60, folder, Console(soft_wrap=True), keep, blows=blows, longest_away_s=away)
    raise typer.Exit(int(verdict))


if __name__ == "__main__":
    typer.run(main)
