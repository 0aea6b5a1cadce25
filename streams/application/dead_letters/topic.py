"""The check of the dead letter topic, before an application starts."""

from __future__ import annotations

from typing import Protocol

from state.changelog.topics import INTERNAL_ENDINGS
from streams.errors import ConfigError
from streams.topology.plan import Plan


class Admin(Protocol):
    """The part of `state.kafka.admin.KafkaAdmin` that this module uses."""

    def topic_config(self, name: str) -> dict[str, str]:
        """All settings of a topic, defaults included."""


def check_dead_letter_topic(topic: str, plan: Plan, admin: Admin) -> None:
    """Refuses a topic that is internal, that the application itself reads, or that would not retain dead letters.

    Raises:
        ConfigError: The topic is not suitable for dead letters.
    """
    if topic in plan.internal_topics or topic.startswith("__") or topic.endswith(INTERNAL_ENDINGS):
        raise ConfigError(
            f"the topic of dead letters {topic!r} has the name of an internal topic: choose a topic of its own"
        )
    tables = (table.source.topics for table in plan.topology.global_tables.values())
    if any(topic in topics for topics in (*(sub.topics for sub in plan.sub_topologies), *tables)):
        raise ConfigError(
            f"the topic of dead letters {topic!r} is read by this application, which would read its bad records again and again: "
            f"choose a topic of its own, one that no pattern of the application matches"
        )
    if "compact" in admin.topic_config(topic).get("cleanup.policy", ""):
        raise ConfigError(
            f"the topic of dead letters {topic!r} is compacted, so of several dead letters with one key only the last would be "
            f"kept, and one without a key is refused: kafka-configs.sh --alter --entity-type topics --entity-name {topic} "
            f"--add-config cleanup.policy=delete, or choose another topic"
        )
