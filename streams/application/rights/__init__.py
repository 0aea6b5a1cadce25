"""The rights (Kafka's ACLs) that an application needs: which, whether it has them, and what grants them."""
