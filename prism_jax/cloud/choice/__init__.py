"""The choice: all offers, numbers of instances and policies, bounded, simulated and compared under the same worlds."""
