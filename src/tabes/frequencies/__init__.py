"""How often each token occurs in ordinary text: tables to load, to make and to write (docs/frequencies.md)."""

from __future__ import annotations

from tabes.frequencies.count import FileCount, count_file, count_files
from tabes.frequencies.table import Frequencies, FrequencyWarning

__all__ = ["FileCount", "Frequencies", "FrequencyWarning", "count_file", "count_files"]
