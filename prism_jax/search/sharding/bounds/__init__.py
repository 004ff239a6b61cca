"""What no assignment of embedding tables can beat."""
