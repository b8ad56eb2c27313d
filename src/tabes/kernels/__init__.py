"""Whole transitions that draw what is revealed and what is masked again from one distribution.

None ships yet. A kernel is a `tabes.sampling.Sampler`: it makes the `Move` itself, may keep its own clock and says with
`Move.done_B` when a row is done.
"""

__all__: list[str] = []
