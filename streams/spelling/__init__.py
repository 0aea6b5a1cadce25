"""What is said to a name that does not exist: what it is called here, or which names are most like it.

Programs are written from memory, of Kafka Streams in Java, of its older versions, or of other libraries. `answers` looks a
missing attribute up; the other modules are the tables, by class.
"""
