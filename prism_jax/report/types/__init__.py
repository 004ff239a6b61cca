"""What reports are made of: plain data, one file per report."""
