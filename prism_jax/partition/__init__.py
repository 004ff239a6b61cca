"""Which blocks a model chunk holds, and which parameters a stage."""
