"""The runtime of a sub-topology's operators, in a reader and in a task; neither Spark nor a Kafka client is imported."""
