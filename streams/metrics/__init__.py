"""The figures of an application: what a step measures, what the driver makes of it, and how it is served."""
