"""Transformers over patches of images: classifiers (ViT) and denoisers of latents (DiT)."""
