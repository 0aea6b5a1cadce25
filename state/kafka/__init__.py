"""Everything that talks to Kafka: range reader, transactional producer, admin client, partitioner.

Records move in one of two ways, with equal results: through the ordinary confluent-kafka client, or ("bulk") through
librdkafka's C API of the same wheel, driven by compiled kernels over Arrow buffers, at a fraction of the cost per record.
This package does not know stores or streams.
"""
