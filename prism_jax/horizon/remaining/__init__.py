"""What is left of a run that has begun: its time as a distribution, from the steps that are logged."""
