"""As many rows as the joint error bound allows (EB-Sampler, arXiv 2505.24857).

    write the longest prefix U of the order with  sum_{i in U} H_i - max_{i in U} H_i <= bound

which bounds the KL divergence between writing U at once and one by one. The order is the ranking's (the paper's error
proxies are the rankings `confidence`, `entropy` and `margin`), the bound is always about entropies. Reduces to
`tokens_per_step` with one token at a bound of 0 (rows whose entropy is 0 to the last bit aside), and to everything at
once at an infinite one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, ClassVar

from torch import Tensor

from tabes.budgets.adaptive import Adaptive, in_order, prefix
from tabes.parts import BUDGETS, Ranked
from tabes.settings import setting
from tabes.view import View

__all__ = ["EntropyBound"]


@BUDGETS.register("entropy_bound")
@dataclass(frozen=True)
class EntropyBound(Adaptive):
    """The sum of the entropies written at once, the largest left out, stays within `bound` nats."""

    bound: float = setting(0.1, "nats the rows written together may have besides the largest of them", least=0)

    statistics: ClassVar[frozenset[str]] = frozenset({"entropy", "log_normaliser"})

    def cut(self, view: View, ranked: Ranked, taken_B: Tensor, state: Any) -> tuple[Tensor, Any]:
        entropy_BR = in_order(ranked, ranked.prediction.entropy_BL).double()
        error_BR = entropy_BR.cumsum(1) - entropy_BR.cummax(1).values
        return prefix(ranked, error_BR <= self.bound), state
