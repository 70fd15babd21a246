"""REST: the rows of the store and the state of the tracer, over HTTP (docs/rest.md)."""
