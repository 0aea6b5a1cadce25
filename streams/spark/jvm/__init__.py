"""The Java process that runs Spark: its start, its output, its end."""
