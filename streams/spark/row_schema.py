"""The columns of a row on its way through Spark's shuffle: the task's key, and the fields of `streams.microbatch.read.TaskRow`.

The data source declares these columns to Spark, and the readers deliver them as Arrow. Both use this one list, because order
and types must agree. The file imports nothing: Spark starts three short-lived Python processes for each query just to
inspect the source.
"""

COLUMNS = (
    ("task_key", "INT"),
    ("batch", "STRING"),
    ("topic", "STRING"),
    ("partition", "INT"),
    ("first", "BIGINT"),
    ("last", "BIGINT"),
    ("topic_id", "STRING"),
    ("counters", "STRING"),
    ("partition_time", "STRING"),
    ("global_topics", "STRING"),
    ("payload", "BINARY"),
    ("backlog", "BOOLEAN"),
    ("routing", "STRING"),
    ("event_time", "STRING"),
)
"""Name and Spark's type of each column."""

SPARK_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
