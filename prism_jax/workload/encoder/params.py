"""Counts of what an encoder has beside its layers: embeddings with types of tokens, and the heads of its losses.

Source: `BertForPreTraining` of Hugging Face transformers, whose counts these are: a norm behind the embeddings and none behind
the layers; masked-token head: product, norm, biases of the vocabulary; next sentence: pooler and two classes.
"""

from __future__ import annotations

from ..transformer.params import embedding_params as token_and_position_params, norm_params
from ..transformer.sizes import TransformerSizes

MOST_TOKEN_TYPES = 1000
_CLASSES = 2  # next sentence or not


def embedding_params(sizes: TransformerSizes, n_token_types: int) -> int:
    """Tokens, positions, types, norm."""
    return token_and_position_params(sizes) + n_token_types * sizes.hidden + norm_params(sizes)


def transform_params(sizes: TransformerSizes) -> int:
    """The product in front of the vocabulary's, with biases."""
    return sizes.hidden**2 + sizes.hidden


def pooler_params(sizes: TransformerSizes) -> int:
    """Pooler and classifier of the next-sentence loss."""
    return sizes.hidden**2 + sizes.hidden + _CLASSES * (sizes.hidden + 1)


def head_params(sizes: TransformerSizes, next_sentence: bool) -> int:
    """Heads of both losses, without the matrix of the vocabulary where it is the embedding's."""
    own = transform_params(sizes) + norm_params(sizes) + sizes.vocab
    matrix = 0 if sizes.tied_embeddings else sizes.vocab * sizes.hidden
    return own + matrix + (pooler_params(sizes) if next_sentence else 0)


def head_flops(sizes: TransformerSizes, n_token: int, next_sentence: bool) -> float:
    """Forward FLOPs of the heads for one sample, of which `n_token` tokens are predicted."""
    masked = 2.0 * n_token * sizes.hidden * (sizes.hidden + sizes.vocab)
    return masked + (2.0 * sizes.hidden * (sizes.hidden + _CLASSES) if next_sentence else 0.0)
