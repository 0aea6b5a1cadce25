"""Applications in processes of their own, as their users start them."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil

from streams.drills.processes import CommandProcess, own_environment
from tests.spark.harness import Harness

ROOT = Path(__file__).parents[2]


class Application(CommandProcess):
    """A command that is started in the folder of the project.

    Args:
        command: the command line.
        folder: where its log goes.
        prefix: of its topics.
        environment: variables of its own; default: ours, and our Python for Spark.
    """

    def __init__(
        self, command: Sequence[str], folder: Path, prefix: str, environment: Mapping[str, str] | None = None
    ) -> None:
        given = own_environment() if environment is None else environment
        super().__init__(command, folder, {**given, "APPS_PREFIX": prefix}, ROOT)


def command_lines(pid: int | None = None) -> list[str]:
    """The command lines of all processes below one; default: below this one."""
    lines = []
    for process in psutil.Process(pid).children(recursive=True):
        with suppress(psutil.Error):
            lines.append(" ".join(process.cmdline()))
    return lines


@contextmanager
def streams_run(target: str, harness: Harness, folder: Path, *options: str) -> Iterator[Application]:
    """`streams run` of a harness's application in a process of its own, which ends with the block."""
    command = [str(Path(sys.executable).parent / "streams"), "run", target, "-b", harness.servers]
    place = ["-a", harness.application_id, "--base-dir", str(harness.folder)]
    settings = ["--set", "spark.ui.enabled=false", "--set", "spark.driver.memory=512m"]
    if harness.micro_batches:
        settings += ["--set", "execution=micro-batch"]
    application = Application([*command, *place, *settings, *options], folder, harness.application_id)
    try:
        yield application
    finally:
        application.close()
