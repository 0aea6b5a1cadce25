"""Lake sinks without Spark: the commits in a table, where to continue, and whether a write is the writer's own."""
