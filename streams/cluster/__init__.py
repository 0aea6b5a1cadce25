"""What works with any Kafka cluster: topics, transactions, rights."""
