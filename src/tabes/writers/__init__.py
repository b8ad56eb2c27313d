"""WHAT token: one rule per file."""

from tabes.writers.argmax import Argmax
from tabes.writers.categorical import Categorical

__all__ = ["Argmax", "Categorical"]
