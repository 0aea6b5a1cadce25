"""Lake sinks on Spark: Delta tables and functions of `foreach_batch`."""
