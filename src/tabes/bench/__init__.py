"""Measuring rules: `run` decodes a task into rows (JSONL), `report` reads rows into numbers and tables. Never mixed."""

from tabes.bench.report import Summary, summarise
from tabes.bench.rows import Row, read_rows, write_rows
from tabes.bench.run import run
from tabes.bench.specs import SamplerSpec, parse_sampler, parse_samplers, parse_task

__all__ = [
    "Row",
    "SamplerSpec",
    "Summary",
    "parse_sampler",
    "parse_samplers",
    "parse_task",
    "read_rows",
    "run",
    "summarise",
    "write_rows",
]
