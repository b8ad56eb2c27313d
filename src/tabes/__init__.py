"""tabes: decode masked diffusion language models with any rule, and know what it cost.

Importing this package is light: a name is imported from its module when it is first used.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tabes.canvas import Canvas, Move
    from tabes.cost import Cost
    from tabes.decoding import Step, decode
    from tabes.denoiser import Denoiser
    from tabes.errors import TabesError
    from tabes.generation import Output, generate
    from tabes.guidance import Guidance
    from tabes.loading import load
    from tabes.messages import chat
    from tabes.presets import sampler, samplers
    from tabes.rowcache import RowCache
    from tabes.sampling import Sampler
    from tabes.suppression import Suppress

__version__ = "0.1.0"

__all__ = [
    "Canvas",
    "Cost",
    "Denoiser",
    "Guidance",
    "Move",
    "Output",
    "RowCache",
    "Sampler",
    "Step",
    "Suppress",
    "TabesError",
    "chat",
    "decode",
    "generate",
    "load",
    "sampler",
    "samplers",
]

_MODULES = {
    "Canvas": "canvas",
    "Cost": "cost",
    "Denoiser": "denoiser",
    "Guidance": "guidance",
    "Move": "canvas",
    "Output": "generation",
    "RowCache": "rowcache",
    "Sampler": "sampling",
    "Step": "decoding",
    "Suppress": "suppression",
    "TabesError": "errors",
    "chat": "messages",
    "decode": "decoding",
    "generate": "generation",
    "load": "loading",
    "sampler": "presets",
    "samplers": "presets",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'tabes' has no attribute '{name}'")
    value = getattr(import_module(f"tabes.{_MODULES[name]}"), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
