"""Deletes all that an application has made: internal topics, group offsets, local state and checkpoint."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from state.kafka.admin import KafkaAdmin
from state.restore.directory import StateDirectory
from streams.config import StreamsConfig
from streams.errors import ConfigError

INTERNAL_ENDINGS = ("-changelog", "-commits", "-repartition")


def internal_topics(application_id: str, admin: KafkaAdmin) -> list[str]:
    """Names of the topics that belong to an application (Kafka Streams' own naming rule)."""
    return sorted(
        name
        for name in admin.topic_names()
        if name.startswith(application_id + "-") and name.endswith(INTERNAL_ENDINGS)
    )


def reset(config: StreamsConfig, admin: KafkaAdmin, report: Callable[[str], None]) -> None:
    """Deletes everything of an application, so that it starts anew; its inputs and outputs are left alone.

    Raises:
        ConfigError: the checkpoint is not on a local disk, so this process cannot delete it.
    """
    if "://" in config.checkpoint_dir and not config.checkpoint_dir.startswith("file:"):
        raise ConfigError(
            f"delete the checkpoint {config.checkpoint_dir} with your storage's own tools, then reset again"
        )
    topics = internal_topics(config.application_id, admin)
    admin.delete_topics(topics)
    for topic in topics:
        report(f"deleted topic {topic}")
    if admin.delete_group(config.application_id):
        report(f"deleted consumer group {config.application_id}")
    tasks = StateDirectory(config.state_dir).wipe(config.application_id)
    report(f"deleted local state of {tasks} tasks")
    checkpoint = Path(config.checkpoint_dir.removeprefix("file:"))
    if checkpoint.exists():
        shutil.rmtree(checkpoint)
        report(f"deleted checkpoint {checkpoint}")
