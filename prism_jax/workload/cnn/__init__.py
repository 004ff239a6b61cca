"""Convolutional networks: layers of one sample as they are written down, and blocks of them under a plan."""
