"""Sources outside Kafka: DataFrames and Delta tables that become records."""
