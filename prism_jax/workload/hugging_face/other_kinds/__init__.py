"""Architectures that are no decoders: encoders, encoder-decoders, vision transformers."""
