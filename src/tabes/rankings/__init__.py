"""WHICH positions: one rule per file."""

from tabes.rankings.confidence import Confidence
from tabes.rankings.entropy import Entropy
from tabes.rankings.left_to_right import LeftToRight
from tabes.rankings.margin import Margin
from tabes.rankings.random import Random

__all__ = ["Confidence", "Entropy", "LeftToRight", "Margin", "Random"]
