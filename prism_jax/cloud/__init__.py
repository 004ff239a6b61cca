"""Cloud choice: which instances, how many, spot or not, for a deadline and a budget."""
