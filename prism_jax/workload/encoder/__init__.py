"""Encoders of text: bidirectional attention, and a loss on masked tokens (BERT, RoBERTa)."""
