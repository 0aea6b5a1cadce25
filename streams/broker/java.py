"""Finds the Java that runs the broker: `JAVA_HOME` first, then the PATH, as Spark does."""

import os
import re
import subprocess
from pathlib import Path

from streams.broker.errors import JavaError

MIN_JAVA_VERSION = 17
"""The oldest Java that Kafka 4 brokers and Spark 4 support."""

_HELP = (
    f"The embedded Kafka broker and Spark need Java {MIN_JAVA_VERSION} or newer. "
    "Install one (Debian/Ubuntu: apt install openjdk-17-jre-headless, macOS: brew install openjdk@17), "
    "and put its bin folder on the PATH or set JAVA_HOME."
)


def find_java() -> Path:
    """Returns the `java` command to use, after checking its version.

    Raises:
        JavaError: Java is missing, does not run, or is older than `MIN_JAVA_VERSION`.
    """
    home = os.environ.get("JAVA_HOME")
    java = Path(home) / "bin" / "java" if home else Path("java")
    origin = f"JAVA_HOME={home}" if home else "the PATH"
    try:
        answer = subprocess.run([str(java), "-version"], capture_output=True, text=True, check=True, timeout=60)
    except FileNotFoundError:
        raise JavaError(f"Java was not found (looked for '{java}', from {origin}). {_HELP}") from None
    except (OSError, subprocess.SubprocessError) as error:
        raise JavaError(f"'{java} -version' (from {origin}) failed: {error}. {_HELP}") from error
    version = _major_version(answer.stderr + answer.stdout)
    if version is None:
        raise JavaError(f"'{java} -version' (from {origin}) printed no version that could be read. {_HELP}")
    if version < MIN_JAVA_VERSION:
        raise JavaError(f"Java {version} ('{java}', from {origin}) is too old. {_HELP}")
    return java


def _major_version(output: str) -> int | None:
    """The major version: 17 for 'openjdk version "17.0.15" 2025-04-15', 8 for 'java version "1.8.0_402"'."""
    match = re.search(r'version "(?:1\.)?(\d+)', output)
    return int(match.group(1)) if match else None
