"""Jobs read from the heads of training logs, against what is known of them."""
