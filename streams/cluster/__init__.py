"""What works with any Kafka cluster, for people and commands: topics and their sizes, records by hand, answers about brokers.

The engine's own client is `state.kafka`; the embedded broker is `streams.broker`, from which Kafka's admin client in Java takes
its jars.
"""
