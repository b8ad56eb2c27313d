"""HOW MANY: one rule per file."""

from tabes.budgets.all_sure import AllSure
from tabes.budgets.coins import Coins
from tabes.budgets.compatible import Compatible
from tabes.budgets.curve import Curve
from tabes.budgets.draft import Draft
from tabes.budgets.dream import Dream
from tabes.budgets.entropy_bound import EntropyBound
from tabes.budgets.even import Even
from tabes.budgets.factor import Factor
from tabes.budgets.quota import Quota
from tabes.budgets.stability import Stability
from tabes.budgets.threshold import Threshold
from tabes.budgets.tokens_per_step import TokensPerStep

__all__ = [
    "AllSure",
    "Coins",
    "Compatible",
    "Curve",
    "Draft",
    "Dream",
    "EntropyBound",
    "Even",
    "Factor",
    "Quota",
    "Stability",
    "Threshold",
    "TokensPerStep",
]
