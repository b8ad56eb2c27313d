"""The parts of Backward-on-Entropy steering: soft writes, importance, sparse lookahead, objectives, gate and floor."""

from tabes.steering.candidates import Prefilter
from tabes.steering.importance import Importance
from tabes.steering.lookahead import Lookahead
from tabes.steering.objectives import (
    OBJECTIVES,
    ClassWeighted,
    InformationGain,
    MeanOverBlocks,
    Objective,
    TotalEntropy,
    Verifier,
    as_objective,
)
from tabes.steering.probes import NoSignalWarning, Probes
from tabes.steering.scene import Copies, Scene
from tabes.steering.shaping import Shaping
from tabes.steering.writes import soft_deltas

__all__ = [
    "OBJECTIVES",
    "ClassWeighted",
    "Copies",
    "Importance",
    "InformationGain",
    "Lookahead",
    "MeanOverBlocks",
    "NoSignalWarning",
    "Objective",
    "Prefilter",
    "Probes",
    "Scene",
    "Shaping",
    "TotalEntropy",
    "Verifier",
    "as_objective",
    "soft_deltas",
]
