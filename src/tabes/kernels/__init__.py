"""Whole transitions that draw what is revealed and what is masked again from one distribution.

A kernel is a `tabes.sampling.Sampler`: it makes the `Move` itself, may keep its own clock and says with `Move.done_B`
when a row is done. `tabes.kernels.base` has what most of them share.
"""

from tabes.kernels.beam import Beam
from tabes.kernels.dfm import DFM
from tabes.kernels.forward_backward import ForwardBackward
from tabes.kernels.mdlm import MDLM
from tabes.kernels.p2 import P2
from tabes.kernels.remdm import ReMDM
from tabes.kernels.remdm_loop import ReMDMLoop
from tabes.kernels.sedd import SEDD

__all__ = ["DFM", "MDLM", "P2", "SEDD", "Beam", "ForwardBackward", "ReMDM", "ReMDMLoop"]
