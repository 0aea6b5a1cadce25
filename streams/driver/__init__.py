"""All code that knows Spark: sessions, queries, the source, workers."""

from importlib.util import find_spec

from streams.errors import ConfigError

# Spark is an extra: on a platform with Spark, it is the platform's.
if find_spec("pyspark") is None:
    raise ConfigError(
        "Spark is missing: install it with `pip install 'streams-on-spark[spark]'`, or run with the Python of your Spark platform."
    )
