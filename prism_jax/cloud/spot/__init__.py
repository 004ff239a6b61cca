"""Spot capacity: laws of spells, losses in groups, prices, and worlds drawn from them."""
