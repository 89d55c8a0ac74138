"""Where training batches come from: each is known by its number, so that a run can go on anywhere."""

from __future__ import annotations

from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Protocol


class Stream(Protocol):
    """Batches by number. A stream may have `settings`, what its batches follow from, to be told from others."""

    def batch(self, number: int) -> Any:
        """The batch of a number, a tuple of tensors; the same whenever it is asked for."""


class Prefetched:
    """A stream whose next batch, so many numbers on, is made while the last one is trained on."""

    def __init__(self, stream: Stream, stride: int = 1) -> None:
        self._stream, self._stride = stream, stride
        self._pool = ThreadPoolExecutor(1)
        self._waiting: tuple[int, Future[Any]] | None = None

    def batch(self, number: int) -> Any:
        if self._waiting is None or self._waiting[0] != number:
            self._waiting = number, self._pool.submit(self._stream.batch, number)
        batch = self._waiting[1].result()
        after = number + self._stride
        self._waiting = after, self._pool.submit(self._stream.batch, after)
        return batch

    def close(self) -> None:
        self._pool.shutdown(wait=True, cancel_futures=True)
