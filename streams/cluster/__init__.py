"""Requests that work with any Kafka cluster: topics, transactions, rights."""
