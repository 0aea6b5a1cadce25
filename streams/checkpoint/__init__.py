"""Spark's checkpoint of a sub-topology as the engine sees it: what it has logged, whether the commit markers fit, another one."""
