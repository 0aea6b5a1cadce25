"""Tests of `state.kafka` on a real broker: both ways of talking to Kafka, compared with each other."""
