"""Image files, read and written with what they hold: 16 bits, alpha, the colour profile."""
