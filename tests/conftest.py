"""Settings that every test shares."""

from hypothesis import settings

# A deadline would make the outcome depend on how busy the machine is.
settings.register_profile("spadeful", deadline=None)
settings.load_profile("spadeful")
