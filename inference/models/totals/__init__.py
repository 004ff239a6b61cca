"""Step time of networks of which only totals are known, on GPUs of which only the datasheet is."""
