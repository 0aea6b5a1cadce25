"""The cells of docs/start/notebook.md, from top to bottom, on a real broker and real Spark."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from state.kafka.admin import KafkaAdmin
from state.kafka.topics import TopicSpec
from streams.broker import EmbeddedBroker
from tests.spark.harness import Sent, send

PAGE = Path(__file__).parents[2] / "docs" / "start" / "notebook.md"


@pytest.mark.spark
@pytest.mark.long
def test_the_cells_run_from_top_to_bottom(broker: EmbeddedBroker, tmp_path: Path) -> None:
    with KafkaAdmin({"bootstrap.servers": broker.bootstrap_servers}) as admin:
        admin.create_topics([TopicSpec(f"notebook-{name}", 1, {}, 1) for name in ("words", "counts")])
    send(broker.bootstrap_servers, "notebook-words", [Sent(b"tea", b"{}", 1), Sent(b"tea", b"{}", 2)])
    cells = re.findall(r"```python\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    # The reader looks when there is something to see; a script has to wait for it.
    wait = "import time\nwhile not sum(sub.records_out for sub in app.metrics().sub_topologies.values()):\n    time.sleep(0.1)\n"
    cells = [f"{wait}{cell}" if "store_dataframe" in cell else cell for cell in cells]
    script = "\n".join(cells).replace("localhost:9092", broker.bootstrap_servers)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, text=True, check=False, env=os.environ
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.splitlines()[0] == "[('tea', '1'), ('tea', '2')]"
    assert re.search(r"\| *tea\| *2\|", done.stdout), done.stdout
