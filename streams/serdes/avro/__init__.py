"""Avro's values: checked before they are written, and completed after they were read; bytes are fastavro's work."""
