"""Everything that knows Spark: sessions, queries, the source, workers."""
