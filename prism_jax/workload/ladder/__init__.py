"""A model of which nothing is known but how long its steps take on one device."""
