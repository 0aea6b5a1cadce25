"""The Java process that runs Spark: start, output, end."""
