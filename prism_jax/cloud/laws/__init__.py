"""Small laws that fits of a few measurements give a cloud plan: step time, workers of a parameter server, start-up."""
