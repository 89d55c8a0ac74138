"""Settings that every test shares."""

import pytest
from hypothesis import settings

# A deadline would make the outcome depend on how busy the machine is, fresh examples on every run on luck:
# exploring is what fuzz.py is for.
settings.register_profile("spadeful", deadline=None, derandomize=True)
settings.load_profile("spadeful")


@pytest.fixture(scope="module")
def one_thread():
    """Networks too small for two threads to be worth waking; and the bits depend on how many there are."""
    torch = pytest.importorskip("torch")
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)
