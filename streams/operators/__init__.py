"""Operators: the processing of records. One operator per file; neither Spark nor a Kafka client is imported here."""
