"""The primitive: run the network once, remember its keys and values, replay only chosen rows."""

from tabes.attention.beside import Beside
from tabes.attention.memory import Layer, Memory, Slots
from tabes.attention.tape import Plain, Record, Replay, Tape, using

__all__ = ["Beside", "Layer", "Memory", "Plain", "Record", "Replay", "Slots", "Tape", "using"]
