"""Times between failures, repairs and losses of several nodes at once, from logs of node failures."""
