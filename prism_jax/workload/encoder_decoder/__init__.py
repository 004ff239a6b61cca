"""Encoder-decoders of text: a stack that reads, and a stack that writes and attends to what was read (T5)."""
