"""Takes over the state of Kafka Streams applications in Java, and hands it back."""
