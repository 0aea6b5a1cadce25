"""`streams topic`: topics of any cluster, the embedded broker's by default."""

from streams.cli.command import add, application
from streams.cli.topic.create import create
from streams.cli.topic.delete import delete
from streams.cli.topic.describe import describe
from streams.cli.topic.list import list_topics
from streams.cli.topic.read import read
from streams.cli.topic.send import send

app = application(
    "Topics of any cluster. Without --bootstrap-servers: those of the embedded broker that runs in this folder."
)
for _name, _command in {
    "create": create,
    "list": list_topics,
    "describe": describe,
    "send": send,
    "read": read,
    "delete": delete,
}.items():
    add(app, _name, _command)
