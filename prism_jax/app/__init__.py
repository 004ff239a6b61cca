"""Use cases: everything that the command line does is one call here, and every answer is a typed report."""
