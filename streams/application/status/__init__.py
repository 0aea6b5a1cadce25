"""How far an application is, read from Kafka: its sub-topologies and its lake sinks."""
