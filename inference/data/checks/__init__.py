"""What is looked at in the values of measurement files."""
