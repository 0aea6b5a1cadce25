"""Commands about copies of stores: snapshots and replicas."""
