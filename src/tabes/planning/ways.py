"""Which of the ways to decode that are planned a sampler goes: the most it takes is what the dearest of them takes."""

from __future__ import annotations

from math import ceil

from tabes.errors import UsageError
from tabes.presets import sampler as make_sampler
from tabes.rankings.boe import Boe
from tabes.rankings.boe_verify import BoeVerify
from tabes.rankings.lookahead import LookaheadRanking
from tabes.sampling import PartSampler
from tabes.steering.ranking import Steered

__all__ = ["candidates_of", "ways_of"]

_FORWARDS = frozenset({"info-gain", "lookum", "beam", "info-gain-replay", "lookum-replay"})


def ways_of(name: str) -> tuple[str, ...]:
    """Where `Plan` has the memory of the sampler called `name`: "plain", "lookahead", "boe"."""
    rule = make_sampler(name)
    ranking = rule.ranking if isinstance(rule, PartSampler) else None
    if isinstance(ranking, Boe):
        if ranking.backward == "dense" or ranking.injection == "alone" or ranking.self_term == "exclude":
            raise _unplanned(name, "it runs whole canvases back", "boe")
        return ("boe", "lookahead") if isinstance(ranking, BoeVerify) else ("boe",)
    if isinstance(ranking, LookaheadRanking):
        return ("lookahead",)
    if name in _FORWARDS or isinstance(ranking, Steered) or getattr(rule, "remembers", False):
        raise _unplanned(name, "it tries several canvases in ways of its own", "lookahead")
    return ("plain",)


def candidates_of(name: str, masked: int) -> int:
    """How many rows of each canvas compete for one token with the sampler called `name`; 4 where none do."""
    rule = make_sampler(name)
    ranking = rule.ranking if isinstance(rule, PartSampler) else None
    if not isinstance(ranking, Steered):
        return 4
    count = masked if ranking.rho is None else ceil(ranking.rho * masked)
    return count if ranking.candidates is None else min(count, ranking.candidates)


def _unplanned(name: str, why: str, near: str) -> UsageError:
    return UsageError(f"the memory of sampler '{name}' is not planned, because {why}; '{near}' comes nearest")
