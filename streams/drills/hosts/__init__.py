"""Several hosts on one machine: namespaces as hosts, Spark standalone on them, and an application that runs there."""
