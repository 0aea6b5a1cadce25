"""Changes the number of tasks of an application's state (`streams rescale`), in the order of docs/architecture/starts.md."""
