"""From two image files to a third: what `spadeful color` does."""
