"""Suggestions for names that do not exist: the name used here, or the most similar names.

Users write programs from memory of Kafka Streams in Java, of its older versions, or of other libraries. `answers` looks up missing
attributes; the other modules are its tables, by class.
"""
