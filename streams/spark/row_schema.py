"""The columns of a row on its way through Spark's shuffle: the task's key, and the fields of `streams.microbatch.rows.TaskRow`.

Written once, because Spark is told by the data source what columns there are, and gets them as Arrow from the readers: the
order and the types must be the same. The file imports nothing: Spark starts three short-lived Python processes for each query
just to look at the source.
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
)
"""Name and Spark's type of each column."""

SPARK_SCHEMA = ", ".join(f"{name} {kind}" for name, kind in COLUMNS)
