"""Operators: what happens to a record. One operator per file; no Spark and no Kafka client is imported here."""
