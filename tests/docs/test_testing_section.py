"""The code of the section "Testing" of `docs/guide.md` does what it says."""

import inspect
import re
import subprocess
import sys
from pathlib import Path

import pytest

from streams import Materialized, StreamsBuilder
from streams.topology.topology import Topology
from tests.docs.page import PAGES

_SECTION = PAGES["guide"].read_text(encoding="utf-8").split("\n## Testing\n")[1].split("\n## ")[0]
DRIVER, FIXTURES = re.findall(r"```py\n(.*?)```", _SECTION, re.DOTALL)
PLUGIN = ("-p", "no:streams", "-p", "streams.pytest_plugin")
"""The plugin as it is here: an environment may have been made before it was."""


def build() -> Topology:
    builder = StreamsBuilder()
    counts = builder.stream("in").group_by_key().count(named="per-key", materialized=Materialized(name="counts"))
    counts.to_stream().to("counts")
    return builder.build()


def test_it_runs() -> None:
    exec(compile(DRIVER, str(PAGES["guide"]), "exec"), {"build": build})


@pytest.mark.kafka
@pytest.mark.slow
def test_the_fixtures_run(tmp_path: Path) -> None:
    program = "from streams import Materialized, StreamsBuilder, Topology\n\n" + inspect.getsource(build)
    (tmp_path / "test_fixtures.py").write_text(f"{program}\n\n{FIXTURES}")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", *PLUGIN, "--rootdir", ".", "."]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert "2 passed" in done.stdout, done.stdout + done.stderr
