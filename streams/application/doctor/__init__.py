"""`streams doctor`: compares everything that an application has left in Kafka and on disks, and changes nothing."""
