"""Fill the holes of a text with any masked language model, and say what it cost.

python examples/infill.py bert-base-uncased "The capital of [MASK] is [MASK]."
python examples/infill.py sudoku "2...9..13..6.57...5..3.....1...6...8.935..4.2..4.7.....71.2.....8..167..65..39.41"
"""

from __future__ import annotations

import sys

import tabes

RULES = ("left-to-right", "random", "confidence", "margin", "entropy", "boe", "lookahead")


def main() -> None:
    name, prompt = sys.argv[1:]
    model = tabes.load(name)
    for rule in RULES:
        output = tabes.generate(model, prompt, sampler=rule, seed=0)
        text = output.texts[0] if output.texts else str(output.sequences[0].tolist())
        print(f"{rule:>14}  {output.cost.forward_equivalents:5.1f} forward-equivalents  {text}")


if __name__ == "__main__":
    main()
