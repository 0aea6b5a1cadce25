"""The program of `test_secrets.py`: prints and logs in its workers, is larger than a megabyte, and waits within a step."""

from __future__ import annotations

import logging
import os
import time
from pathlib import Path

from streams import BytesSerde, StreamsBuilder, Topology

FOLDER = "CANARIES_FOLDER"
SOURCE, TARGET = "CANARIES_SOURCE", "CANARIES_TARGET"
LARGE = 1_500_000
"""Bytes of the function: Spark writes one of more than a megabyte to a file by default."""


def build() -> Topology:
    """Copies records; one with the value `bad` fails."""
    builder = StreamsBuilder(default_key_serde=BytesSerde(), default_value_serde=BytesSerde())
    folder, ballast = Path(os.environ[FOLDER]), os.urandom(LARGE)

    def copied(value: bytes) -> bytes:
        assert len(ballast) == LARGE
        print("printed by a function")
        logging.getLogger("users").info("logged by a function")
        os.write(2, b"written by something in C\n")
        if value == b"bad":
            raise ValueError("a bad record")
        (folder / "entered").touch()
        while not (folder / "go").exists():
            time.sleep(0.05)
        return value

    records = builder.stream(os.environ[SOURCE])
    records.group_by_key().count(named="counted")
    records.map_values(copied).to(os.environ[TARGET])
    return builder.build()
