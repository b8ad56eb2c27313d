"""HOW MANY: one rule per file."""

from tabes.budgets.compatible import Compatible
from tabes.budgets.cosine import Cosine
from tabes.budgets.even import Even
from tabes.budgets.tokens_per_step import TokensPerStep

__all__ = ["Compatible", "Cosine", "Even", "TokensPerStep"]
