"""Instances as clusters: what joins their GPUs, and how long a step takes on so many of them."""
