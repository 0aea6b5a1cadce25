"""The terminal in the README: `python -m tests.docs.recording` plays the quick start and draws docs/pictures/quick-start.svg."""

from __future__ import annotations

import io
import re
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

from tests.docs.console import play

ROOT = Path(__file__).parents[2]
PICTURE = ROOT / "docs" / "pictures" / "quick-start.svg"
WIDTH = 120


def picture(printed: list[tuple[str, str]]) -> str:
    """An SVG of a terminal with the commands and what they have printed. Nothing in it is loaded from elsewhere."""
    console = Console(record=True, width=WIDTH, file=io.StringIO(), force_terminal=True)
    for command, text in printed:
        console.print(Text(f"$ {command}", "bold green"))
        console.print(Text.from_ansi(text.rstrip("\n")), end="\n" if text.strip() else "")
    svg = console.export_svg(title="Quick start", unique_id="quick-start")
    return re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)


def main() -> None:
    readme = (ROOT / "README.md").read_text(encoding="utf-8")
    with tempfile.TemporaryDirectory() as folder:
        printed = [(command, text.replace(folder, "~")) for command, text in play(readme, Path(folder))]
        PICTURE.write_text(picture(printed), encoding="utf-8")


if __name__ == "__main__":
    main()
