"""A verifier at work: Sudokus with plain confidence, and with the rules of Sudoku as what steering makes small.

python examples/verifier.py 200

The rules are asked only where the model is unsure, so this costs a few percent more than plain decoding.
"""

from __future__ import annotations

import sys

import tabes
from tabes.steering import Verifier
from tabes.tasks import sudoku
from tabes.tasks.sudoku_rules import expected_violations


def main() -> None:
    count = int(sys.argv[1])
    model = tabes.load("sudoku")
    puzzles = sudoku.puzzles(count, clues=26, seed=7)
    prompts = [sudoku.to_text(givens) for givens in puzzles.givens]
    answers = [sudoku.to_text(solution) for solution in puzzles.solutions]
    rules = {
        "confidence": tabes.sampler("confidence"),
        "rules of Sudoku": tabes.sampler("lookahead", objective=Verifier(expected_violations)),
    }
    for name, rule in rules.items():
        output = tabes.generate(model, prompts, sampler=rule)
        solved = sum(text == answer for text, answer in zip(output.texts or (), answers, strict=True))
        print(f"{name}: {solved} of {count} solved, {output.cost.forward_equivalents:.1f} forward-equivalents each")


if __name__ == "__main__":
    main()
