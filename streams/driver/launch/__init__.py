"""What happens before pyspark is imported: the settings of a session, its Java process, and a session that is started early."""
