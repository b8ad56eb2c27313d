"""Watch a canvas being filled: the loop in your own hands, one line per step.

python examples/watch.py sudoku "2...9..13..6.57...5..3.....1...6...8.935..4.2..4.7.....71.2.....8..167..65..39.41"
"""

from __future__ import annotations

import sys

import torch

import tabes


def main() -> None:
    name, prompt = sys.argv[1:]
    model = tabes.load(name)
    if model.tokenizer is None:
        raise SystemExit(f"{name} has no tokenizer")
    canvas = tabes.Canvas.create(torch.tensor([model.tokenizer.encode(prompt)]), mask_id=model.mask_id)
    for step in tabes.decode(model, canvas, tabes.sampler("confidence", tokens_per_step=4)):
        written = [model.tokenizer.convert_ids_to_tokens(token) for token in step.tokens[0]]
        places = ", ".join(
            f"{position}={token} ({score:.2f})"
            for position, token, score in zip(step.positions[0], written, step.scores[0], strict=True)
        )
        print(f"step {step.index:2}: {places}")
    print(model.tokenizer.decode(step.canvas.tokens_BL[0].tolist()))


if __name__ == "__main__":
    main()
