"""What to take back or write anew, by count: one rule per file."""

from tabes.revisers.edit import Edit
from tabes.revisers.least_certain import LeastCertain
from tabes.revisers.loop import Loop
from tabes.revisers.remdm import ReMDM
from tabes.revisers.verify import Verify

__all__ = ["Edit", "LeastCertain", "Loop", "ReMDM", "Verify"]
