"""Rows of a steps table that train an encoder or an encoder-decoder: their models, and what recipes say where rows are blank."""
