"""Hugging face."""
