"""Reads Spark's checkpoint of a sub-topology, checks whether the commit markers match it, and creates a new one."""
