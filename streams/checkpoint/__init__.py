"""Spark's checkpoint of a sub-topology as the engine sees it: its contents, whether the commit markers fit it, and a new one."""
