"""Another number of tasks for the state of an application (`streams rescale`), in the order of docs/architecture/starts.md."""
