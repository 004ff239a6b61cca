"""Which plans a model and a cluster allow."""
