"""How well does a score predict the true drop? `measure` makes rows; `summarise` and `examine` read them."""

from tabes.bench.fidelity.measuring import Inject, Settings, measure
from tabes.bench.fidelity.report import Fidelity, summarise
from tabes.bench.fidelity.rows import Curve, StateRow, read_states
from tabes.bench.fidelity.scores import SCORES, Question, parse_scores
from tabes.bench.fidelity.theory import Theory, examine

__all__ = [
    "SCORES",
    "Curve",
    "Fidelity",
    "Inject",
    "Question",
    "Settings",
    "StateRow",
    "Theory",
    "examine",
    "measure",
    "parse_scores",
    "read_states",
    "summarise",
]
