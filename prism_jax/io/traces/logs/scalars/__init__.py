"""Step times among named scalars: tables, W&B histories, states of the HF Trainer, TensorBoard files."""
