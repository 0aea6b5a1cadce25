"""`streams rescale`: the command and its progress."""
