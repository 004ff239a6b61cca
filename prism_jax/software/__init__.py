"""Software of a job below its framework: which kernels run, how they are started, and what is usual where nobody says."""
