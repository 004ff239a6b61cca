"""What `prism-jax` returns to the shell.

0 done; 1 failed: a fit that failed its checks, a job given to `check` or `predict` that does not fit into memory, a full disk, a
fault; 2 wrong input: an option, a file, a job; 130 interrupted.
"""

OK, FAILED, WRONG_INPUT, INTERRUPTED = 0, 1, 2, 130
