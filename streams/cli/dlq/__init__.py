"""`streams dlq`: dead letters, listed, shown, replayed and deleted."""

from streams.cli.command import add, application
from streams.cli.dlq.list import list_letters
from streams.cli.dlq.purge import purge
from streams.cli.dlq.replay import replay
from streams.cli.dlq.show import show

app = application(
    "Dead letters: the records that an application has set aside. They are those of a topology (TARGET), or of --topic."
)
for _name, _command in {"list": list_letters, "show": show, "replay": replay, "purge": purge}.items():
    add(app, _name, _command)
