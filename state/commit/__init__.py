"""The commit of a step: one Kafka transaction for outputs, changelog, marker and source offsets. Kafka is the authority."""
