"""Plays the console blocks of a page: commands as a reader types them, with the lines that they must print."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import textwrap
from contextlib import ExitStack
from pathlib import Path

_FAILED = "(the command has failed)"
_BLOCK = re.compile(r"^( *)```console\n(.*?)^\1```$", re.DOTALL | re.MULTILINE)


def steps(page: str) -> list[tuple[str, list[str]]]:
    """The commands of all console blocks of a page, each with the lines that it is to print."""
    found: list[tuple[str, list[str]]] = []
    for line in "".join(textwrap.dedent(block) for _, block in _BLOCK.findall(page)).splitlines():
        if line.startswith("$ "):
            found.append((line[2:], []))
        else:
            found[-1][1].append(line)
    return found


def with_free_ports(page: str, *ports: int) -> str:
    """The page with free ports in the place of those that it names."""
    with ExitStack() as stack:
        for port in ports:
            free = stack.enter_context(socket.socket())
            free.bind(("127.0.0.1", 0))
            page = page.replace(str(port), str(free.getsockname()[1]))
    return page


def play(page: str, folder: Path, python: Path = Path(sys.executable)) -> list[tuple[str, str]]:
    """Runs the commands one after the other in one shell, with the commands of an environment, as if it were activated.

    `...` in an expected line stands for any text. Returns what each command has printed.
    """
    commands = [step for step in steps(page) if not step[0].startswith(". ")]
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        start = f"streams broker start --port {free.getsockname()[1]}"
    lines = [command.replace("streams broker start", start) for command, _ in commands]
    script = "\n".join(
        f"printf '\\n@{number}\\n'\n{{ {line}; }} || echo '{_FAILED}'" for number, line in enumerate(lines)
    )
    path = os.pathsep.join([str(python.parent), os.environ["PATH"]])
    # Wide tables are not wrapped.
    # What a session in this process has set for its own workers: they would be of this environment, and not of the given one.
    ours = {"PYTHONPATH", "PYSPARK_PYTHON"}
    inherited = {name: value for name, value in os.environ.items() if name not in ours}
    environment = {**inherited, "PATH": path, "COLUMNS": "300"}
    bash = ["bash", "-o", "pipefail", "-c", script]
    output = {"stdout": subprocess.PIPE, "stderr": subprocess.STDOUT}
    ran = subprocess.run(bash, cwd=folder, env=environment, text=True, check=False, **output)  # type: ignore[call-overload]
    # What curl prints may end without a new line, so each mark brings its own.
    printed = re.split(r"\n@\d+\n", ran.stdout)[1:]
    for (command, expected), text in zip(commands, printed, strict=True):
        may_fail = any("Error" in line for line in expected)
        assert may_fail or _FAILED not in text, f"$ {command}\n{text}"
        for line in expected:
            wanted = ".*".join(map(re.escape, re.split(r" *\.\.\. *", line)))
            assert re.search(wanted, text), f"$ {command}\nexpected: {line}\nprinted:\n{text}"
    return [(command, text) for (command, _), text in zip(commands, printed, strict=True)]
