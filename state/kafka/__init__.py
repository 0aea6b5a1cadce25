"""Everything that talks to Kafka: range reader, transactional producer, admin client, partitioner.

Two ways of moving records, with equal results: the ordinary confluent-kafka client, and librdkafka's C API of the same
wheel driven by compiled kernels over Arrow buffers ("bulk"), several times cheaper a record. Nothing here knows stores
or streams.
"""
