"""Hugging Face configurations (`config.json`) as transformers."""
