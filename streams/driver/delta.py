"""Delta Lake in a Spark session: its jars, extension and catalog in a new session, and the check of a running one.

Delta's Python package has no jars. They come from the cache folder (`streams broker fetch --delta`), so that a start needs neither
a network nor Ivy, and through `spark.jars`, so that executors on other hosts get them, too. Spark loads them in addition to its own
classes, so the archive of Spark's classes still fits. If a user's settings name Delta's jars (`spark.jars.packages`), these are
used.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib.util import find_spec
from typing import TYPE_CHECKING

import pyspark
from pyspark.sql import SparkSession

from streams.broker.jars import DELTA_JARS, DELTA_VERSION, SCALA_VERSION, SPARK_VERSION, fetch_jars, is_complete
from streams.driver.checkpoint_files import qualified
from streams.errors import DeltaMissingError

if TYPE_CHECKING:
    from delta.tables import DeltaTable

EXTENSION = "io.delta.sql.DeltaSparkSessionExtension"
CATALOG = "org.apache.spark.sql.delta.catalog.DeltaCatalog"
PACKAGE = f"io.delta:delta-spark_{SPARK_VERSION}_{SCALA_VERSION}:{DELTA_VERSION}"
"""Delta's coordinates for `spark-submit --packages`."""
DELTA_MEMORY = "1g"
"""The limit of a local session's heap: Delta reads and writes Parquet files and keeps the state of tables in Java."""

_EXTENSIONS = "spark.sql.extensions"
_CATALOG = "spark.sql.catalog.spark_catalog"
_JARS = "spark.jars"
_SOURCES_OF_JARS = (_JARS, "spark.jars.packages", "spark.driver.extraClassPath")
WAY_FORWARD = (
    "Let streams start the session (`streams run`, or KafkaStreams.start() without one), or start it with: "
    f"--packages {PACKAGE} --conf {_EXTENSIONS}={EXTENSION} --conf {_CATALOG}={CATALOG}"
)


def jars_fit() -> bool:
    """Whether Delta's jars are made for the installed version of Spark."""
    return str(pyspark.__version__).startswith(f"{SPARK_VERSION}.")


def check_package() -> None:
    """Checks that Delta's Python package, an optional extra, is installed."""
    if find_spec("delta") is None:
        raise DeltaMissingError(
            "The topology reads or writes Delta tables, and the Python package of Delta Lake is missing: "
            "pip install 'streams-on-spark[delta]'"
        )


def fetch_delta(say: Callable[[str], object]) -> None:
    """Fetches Delta's jars, unless they are in the cache folder or do not fit, which `delta_settings` reports.

    Raises:
        DeltaMissingError: Delta's Python package is missing.
        JarFetchError: The jars could not be fetched.
    """
    check_package()
    if jars_fit() and not is_complete(DELTA_JARS.folder):
        say(f"fetching the jars of {DELTA_JARS.title} (once) …")
        fetch_jars(jars=DELTA_JARS)


def delta_settings(settings: Mapping[str, str], *, running: bool = False) -> dict[str, str]:
    """The settings of a session, with the additional ones that Delta needs.

    Raises:
        DeltaMissingError: The jars are made for another version of Spark than this one, and the settings name no others.
        JarFetchError: Delta's jars are not in the cache folder and could not be fetched.
    """
    found = dict(settings)
    extensions = [name for name in found.get(_EXTENSIONS, "").split(",") if name]
    found[_EXTENSIONS] = ",".join([*extensions, *([] if EXTENSION in extensions else [EXTENSION])])
    found.setdefault(_CATALOG, CATALOG)
    if not running and not any("delta-spark" in found.get(setting, "") for setting in _SOURCES_OF_JARS):
        if not jars_fit():
            raise DeltaMissingError(
                f"Delta Lake {DELTA_VERSION} is made for Spark {SPARK_VERSION}, and this is Spark {pyspark.__version__}: "
                f"pip install 'streams-on-spark[delta]' installs a Spark that fits, or name other jars in {_JARS}"
            )
        jars = sorted(fetch_jars(jars=DELTA_JARS).glob("*.jar"))
        found[_JARS] = ",".join([*filter(None, [found.get(_JARS, "")]), *map(str, jars)])
    return found


def check_delta(session: SparkSession) -> None:
    """Checks that a session can read and write Delta tables."""
    check_package()
    from py4j.protocol import Py4JJavaError

    lacking = []
    try:
        session.sparkContext._jvm.java.lang.Thread.currentThread().getContextClassLoader().loadClass(EXTENSION)
    except Py4JJavaError:
        lacking.append("Delta's jars")
    if EXTENSION not in session.conf.get(_EXTENSIONS, "").split(","):
        lacking.append(f"{_EXTENSIONS}={EXTENSION}")
    if not session.conf.get(_CATALOG, ""):
        lacking.append(f"{_CATALOG}={CATALOG}")
    if lacking:
        raise DeltaMissingError(
            f"This Spark session cannot read or write Delta tables, which the topology does: it lacks "
            f"{', '.join(lacking)}. A session takes them only when it starts. {WAY_FORWARD}"
        )


def open_delta(session: SparkSession, name: str, is_path: bool) -> DeltaTable | None:
    """Opens a Delta table; None if it does not exist."""
    from delta.tables import DeltaTable

    if is_path:
        path = qualified(session, name)
        return DeltaTable.forPath(session, path) if DeltaTable.isDeltaTable(session, path) else None
    return DeltaTable.forName(session, name) if session.catalog.tableExists(name) else None
