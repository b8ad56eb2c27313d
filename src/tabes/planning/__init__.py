"""Memory planned before it is needed: the decoding code on networks without numbers."""

from tabes.planning.live import Live
from tabes.planning.planner import Plan, plan

__all__ = ["Live", "Plan", "plan"]
