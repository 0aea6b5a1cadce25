"""Delta Lake: its jars and settings in Spark's session, and Delta tables as sources."""
