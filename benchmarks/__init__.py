"""What tabes costs, measured: `python -m benchmarks [names]` (or `make bench`).

Running writes rows (results/NAME.csv), reporting reads them and prints tables against the targets; never mixed.
"""
