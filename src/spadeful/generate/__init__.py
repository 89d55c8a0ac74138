"""Deep generative models (appendices B.2 and D.3 of the paper): images, networks, one trainer, the score."""

from __future__ import annotations
