"""`streams run` that a signal ends before it is running."""

from __future__ import annotations

import subprocess
import sys


def test_a_signal_in_code_of_an_import_that_is_compiled_from_text_ends_it_as_everywhere_else() -> None:
    """As a dataclass is: Python remembers a plain KeyboardInterrupt there, and ends as killed by it."""
    program = (
        "from streams.cli.run import _interrupt\n"
        "try:\n"
        "    exec('_interrupt()')\n"
        "except KeyboardInterrupt:\n"
        "    print('caught')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, timeout=60, check=False, text=True)
    assert (done.returncode, done.stdout, done.stderr) == (0, "caught\n", "")
