"""Lake sinks without Spark: what a table says of its commits, where to continue, and whether a write is the writer's own."""
