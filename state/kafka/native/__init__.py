"""librdkafka through its C API: columns of records in, columns of records out."""
