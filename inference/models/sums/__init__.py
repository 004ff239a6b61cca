"""Seconds that are a sum of positive terms, times effects of groups: what the models `totals` and `saves` share."""
