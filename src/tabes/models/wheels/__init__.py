"""Trained models that come in packages of the Python package index, loaded by the package's name."""

from tabes.models.wheels.known import Wheel, find_wheel, wheels

__all__ = ["Wheel", "find_wheel", "wheels"]
