"""`docs/ui.md` works as it is written."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.docs.console import play, with_free_ports

PAGE = (Path(__file__).parents[2] / "docs" / "ui.md").read_text(encoding="utf-8")


@pytest.mark.kafka
@pytest.mark.spark
@pytest.mark.long
def test_every_command_prints_what_the_page_says(tmp_path: Path) -> None:
    (tmp_path / "app.py").write_text(PAGE.partition("```python\n")[2].partition("```")[0], encoding="utf-8")
    play(with_free_ports(PAGE, 8080, 8081, 8082, 8083), tmp_path)
