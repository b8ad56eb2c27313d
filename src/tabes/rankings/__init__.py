"""WHICH positions: one rule per file."""

from tabes.rankings.boe import Boe
from tabes.rankings.boe_verify import BoeVerify
from tabes.rankings.confidence import Confidence
from tabes.rankings.entropy import Entropy
from tabes.rankings.left_to_right import LeftToRight
from tabes.rankings.lookahead import LookaheadRanking
from tabes.rankings.margin import Margin
from tabes.rankings.random import Random

__all__ = ["Boe", "BoeVerify", "Confidence", "Entropy", "LeftToRight", "LookaheadRanking", "Margin", "Random"]
