"""Tables of jobs, slowdowns and memory."""
