"""What an application checks, and what it does in Kafka, before Spark starts."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

from state.commit.live import LiveKafka
from state.kafka.admin import KafkaAdmin
from state.kafka.rights import RightsProbe
from state.snapshots.location import open_location
from state.tables.private_folder import check_owner
from streams.application.check_start import check_start
from streams.application.prepare import Application, ensure_internal_topics, plan_application
from streams.application.rights.check import check_created, check_rights
from streams.application.rights.needed import needed_rights
from streams.application.topology_manifest import local_folder, write_manifest
from streams.cluster.topics import check_reachable
from streams.config import StreamsConfig
from streams.errors import ConfigError
from streams.source.log import LiveLog
from streams.source.pauses import Pauses, read_pauses
from streams.topology.topology import Topology


def check_places(config: StreamsConfig) -> None:
    """Refuses folders that cannot work; asks no broker.

    Raises:
        ConfigError: The folder of snapshots cannot be opened, or a folder belongs to somebody else or cannot be written.
    """
    open_location(config.snapshot_dir)
    for setting, folder in (("state_dir", config.state_dir), ("checkpoint_dir", local_folder(config.checkpoint_dir))):
        if folder is not None:
            check_owner(folder)
            _check_writable(config, setting, folder)


def _check_writable(config: StreamsConfig, setting: str, folder: Path) -> None:
    """Writes a file without a name where the folder is or will be: it leaves no trace."""
    there = next(parent for parent in (folder.absolute(), *folder.absolute().parents) if parent.exists())
    try:
        tempfile.TemporaryFile(dir=there).close()
    except OSError as error:
        base = config.base_dir.absolute()
        name = f"base_dir ({base})" if base in folder.absolute().parents else setting
        raise ConfigError(
            f"{name}: {folder} cannot be used, because {there} refuses files: {error.strerror}. Choose another folder, or let "
            "this user write there"
        ) from error


def prepare_start(
    topology: Topology, config: StreamsConfig, tell_created: Callable[[str], None]
) -> tuple[Application, dict[str, int], Pauses]:
    """Checks the cluster, the rights there and what was committed before; then creates the internal topics.

    Raises:
        StreamsError: The application cannot start; nothing was written, apart from topics that are empty.
    """
    check_reachable(config.client)
    needed, probe = needed_rights(topology, config), RightsProbe(config.client)
    missing = check_rights(needed, probe, config.client)
    with KafkaAdmin(config.client) as admin:
        application = plan_application(topology, config, admin)
        log = LiveKafka(config.client, config.transaction_timeout_ms, bulk=config.bulk_io)
        check_start(application, admin, log)
        counts = ensure_internal_topics(application, admin, tell_created)
        check_created(needed, missing, probe, config.client)
        pauses = read_pauses(LiveLog(config.client, admin), config.application_id)
    write_manifest(application.plan, config.checkpoint_dir)
    return application, counts, pauses
