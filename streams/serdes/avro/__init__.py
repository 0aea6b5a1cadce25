"""Avro's values, which are checked before they are written and completed after they were read; fastavro handles the bytes."""
