"""A Kafka Streams application in Java is taken over and handed back twice, on a real broker: `make interop`."""
