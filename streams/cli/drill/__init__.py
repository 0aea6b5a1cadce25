"""`streams drill`: fault drills, in a scratch world of broker, input, readers and application."""

from streams.cli.command import add, application
from streams.cli.drill.list import list_drills
from streams.cli.drill.run import run

app = application(
    "Fault drills: a fault is injected into a running application on a scratch broker, and the results are verified."
)
for _name, _command in {"list": list_drills, "run": run}.items():
    add(app, _name, _command)
