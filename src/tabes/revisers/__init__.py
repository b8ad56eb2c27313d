"""What to take back, by count: one rule per file. None ships yet; `tabes.parts.Reviser` is the place."""

__all__: list[str] = []
