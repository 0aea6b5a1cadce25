"""Sources outside Kafka: rows of DataFrames, written to internal topics, each batch once."""
