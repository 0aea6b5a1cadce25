"""`streams drill list`: all drills, with what they inject and what must hold."""

from __future__ import annotations

from rich.table import Table

from streams.cli.command import command
from streams.cli.console import table_console
from streams.cli.output import print_json
from streams.cli.settings import AsJson


@command
def list_drills(as_json: AsJson = False) -> None:
    from streams.drills.catalogue import DRILLS

    if as_json:
        print_json([drill.as_dict() for drill in DRILLS])
        return
    table = Table("Drill", "Title", "Injects", "Must hold", "Minutes", "Runs with", box=None, header_style="bold")
    for drill in DRILLS:
        title = f"{drill.title} (quick)" if drill.quick else drill.title
        program = "any program" if drill.any_program else "its own program"
        needs = f"{program}; needs {drill.needs}" if drill.needs else program
        table.add_row(drill.id, title, drill.injects, drill.holds, f"{drill.minutes:g}", needs)
    table_console().print(table)
