"""WHICH positions: one rule per file."""

from tabes.rankings.boe import Boe
from tabes.rankings.boe_verify import BoeVerify
from tabes.rankings.calibrated import Calibrated
from tabes.rankings.confidence import Confidence
from tabes.rankings.entropy import Entropy
from tabes.rankings.info_gain import InfoGain
from tabes.rankings.left_to_right import LeftToRight
from tabes.rankings.lookahead import LookaheadRanking
from tabes.rankings.lookum import Lookum
from tabes.rankings.margin import Margin
from tabes.rankings.maskgit import MaskGIT
from tabes.rankings.random import Random

__all__ = [
    "Boe",
    "BoeVerify",
    "Calibrated",
    "Confidence",
    "Entropy",
    "InfoGain",
    "LeftToRight",
    "LookaheadRanking",
    "Lookum",
    "Margin",
    "MaskGIT",
    "Random",
]
