"""Where dead letters must not go: refused before the application starts."""

import pytest

from streams import StreamsBuilder
from streams.application.dead_letters import check_dead_letter_topic
from streams.errors import ConfigError
from streams.topology.plan import build_plan


class Admin:
    def topic_config(self, name):
        return {"cleanup.policy": "compact,delete" if name == "compacted" else "delete"}


@pytest.mark.parametrize(
    ("topic", "said"),
    [
        ("dead", None),
        ("in", "read by this application"),
        ("an-output-that-is-read", "read by this application"),
        ("names", "read by this application"),
        ("app-in-commits", "internal"),
        ("compacted", "is compacted"),
        ("app-counts-changelog", "internal"),
        ("other-in-commits", "internal"),
        ("__consumer_offsets", "internal"),
    ],
)
def test_what_is_refused(topic, said):
    builder = StreamsBuilder()
    builder.stream("in").group_by_key().count(named="counts").to_stream().to("an-output-that-is-read")
    builder.stream("an-output-that-is-read").to("out")
    builder.global_table("names")
    plan = build_plan(builder.build(), "app")
    if said is None:
        check_dead_letter_topic(topic, plan, Admin())
        return
    with pytest.raises(ConfigError, match=said):
        check_dead_letter_topic(topic, plan, Admin())
