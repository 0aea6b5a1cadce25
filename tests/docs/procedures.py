"""The procedures to back up and restore work as they are written: `make docs-check`, since it takes minutes."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.console import play

PAGE = Path(__file__).parents[2] / "docs" / "operate" / "procedures.md"

BEFORE = """
```console
$ streams init shop && cd shop
$ streams broker start
$ streams topic create visits visits-by-minute
$ echo '{"key": "/home", "value": {"user": "ann"}, "timestamp": 1700000000000}' | streams topic send visits --json
$ streams run app.py -c streams.toml --available-now
```
"""
AFTER = """
```console
$ streams broker stop
```
"""


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.slow
def test_what_was_backed_up_is_restored(tmp_path: Path) -> None:
    play(BEFORE + PAGE.read_text(encoding="utf-8") + AFTER, tmp_path)
