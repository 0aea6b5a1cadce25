"""The work before pyspark is imported: a session's settings, its Java process, and a session that is started early."""
