"""Step time against the batch on one instance: a floor and a rate."""
