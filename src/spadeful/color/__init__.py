"""Colour transfer: an image in the colours of another (Algorithm 4 of the paper)."""

from __future__ import annotations

from spadeful.color.call import transfer_colors, transfer_masses
from spadeful.color.painter import Transferred
from spadeful.color.transfer import ColorTransfer

__all__ = ["ColorTransfer", "Transferred", "transfer_colors", "transfer_masses"]
