"""Settings that every test shares."""

from hypothesis import settings

# A deadline would make the outcome depend on how busy the machine is, fresh examples on every run on luck:
# exploring is what fuzz.py is for.
settings.register_profile("spadeful", deadline=None, derandomize=True)
settings.load_profile("spadeful")
