"""Tests; the tree mirrors the packages."""

from . import typechecker as typechecker  # the import hook of jaxtyping looks it up as an attribute
