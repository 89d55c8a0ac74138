"""scikit-learn: adapt a small network on arrays of features, then predict."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, TransformerMixin
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_is_fitted, validate_data
from torch.nn.functional import softmax

from spadeful.adapt.call import adapt, predict
from spadeful.adapt.domain import Domain
from spadeful.adapt.methods import Transport
from spadeful.adapt.methods.base import Method
from spadeful.adapt.networks import feature_network
from spadeful.adapt.train import Training
from spadeful.batches import check_flag
from spadeful.loss import JointCost
from spadeful.problems import Partial


class DeepAdapter(ClassifierMixin, TransformerMixin, BaseEstimator):  # type: ignore[misc]
    """A bottleneck and a classifier on features, trained on a labelled source for an unlabelled target.

    Parameters
    ----------
    method : Method, optional
        m-POT of mass 0.7 with the paper's Office-Home cost (alpha 0.01, lambda 0.5) if absent.
    iterations, batch_size, lr, head_lr, bottleneck, weight_decay : training, by SGD with the paper's annealing.
    standardize : bool
        Whether to scale every feature by the mean and deviation of source and target, each by its own.
    random_state : int, or None for another one each time

    Examples
    --------
    >>> import numpy as np
    >>> from spadeful.adapt import DeepAdapter
    >>> rng = np.random.default_rng(0)
    >>> y = np.repeat([0, 1], 100)
    >>> x = rng.normal(size=(200, 2)) + 6 * y[:, None]
    >>> moved = x + [3, -3]
    >>> model = DeepAdapter(iterations=60, batch_size=50, bottleneck=8).fit(x, y, moved)
    >>> float((model.predict(moved) == y).mean())
    1.0
    """

    def __init__(
        self,
        method: Method | None = None,
        *,
        iterations: int = 1000,
        batch_size: int = 65,
        lr: float = 0.01,
        head_lr: float = 1.0,
        bottleneck: int = 256,
        weight_decay: float = 5e-4,
        standardize: bool = True,
        random_state: int | None = 0,
    ) -> None:
        self.method = method
        self.iterations = iterations
        self.batch_size = batch_size
        self.lr = lr
        self.head_lr = head_lr
        self.bottleneck = bottleneck
        self.weight_decay = weight_decay
        self.standardize = standardize
        self.random_state = random_state

    def fit(self, Xs: Any, ys: Any, Xt: Any = None) -> DeepAdapter:  # noqa: N803
        """Train on the source features and labels, and the target features (the source's own if absent)."""
        check_flag(self.standardize, "standardize")
        x, y = validate_data(self, Xs, ys, dtype=np.float64)
        target = x if Xt is None else validate_data(self, Xt, reset=False, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, labels = np.unique(y, return_inverse=True)
        self.source_scale_, self.target_scale_ = scale_of(x, self.standardize), scale_of(target, self.standardize)
        names = tuple(map(str, self.classes_))
        source = Domain(scaled(x, self.source_scale_), labels.astype(np.int64), "source", names)
        seed = int(np.random.default_rng().integers(2**31)) if self.random_state is None else self.random_state
        torch.manual_seed(seed)
        self.network_ = feature_network(x.shape[1], len(names), self.bottleneck)
        training = Training(
            iterations=self.iterations,
            lr=self.lr,
            optimizer="sgd",
            schedule="annealed",
            head_lr=self.head_lr,
            weight_decay=self.weight_decay,
            evaluate_every=self.iterations,
            seed=seed,
        )
        aim = Domain(scaled(target, self.target_scale_), None, "target", names)
        method = self.method or Transport(Partial(0.7), JointCost(0.01, 0.5))
        self.record_ = adapt(self.network_, source, aim, method, training, batch_size=self.batch_size, test={})
        return self

    def _logits(self, X: Any) -> Any:  # noqa: N803
        check_is_fitted(self)
        x = validate_data(self, X, reset=False, dtype=np.float64)
        domain = Domain(scaled(x, self.target_scale_), None, "target", tuple(map(str, self.classes_)))
        return predict(self.network_, domain)

    def predict_proba(self, X: Any) -> NDArray[np.float64]:  # noqa: N803
        """Probabilities of the classes for points of the target."""
        _, logits = self._logits(X)
        probabilities: NDArray[np.float64] = softmax(logits.double(), dim=1).numpy()
        return probabilities

    def predict(self, X: Any) -> NDArray[Any]:  # noqa: N803
        """Labels for points of the target."""
        best = self.predict_proba(X).argmax(axis=1)
        labels: NDArray[Any] = self.classes_[best]
        return labels

    def transform(self, X: Any) -> NDArray[np.float32]:  # noqa: N803
        """The adapted features of points of the target."""
        features, _ = self._logits(X)
        values: NDArray[np.float32] = features.numpy()
        return values


def scale_of(x: NDArray[np.float64], wanted: bool) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    if not wanted:
        return np.zeros(x.shape[1]), np.ones(x.shape[1])
    spread = x.std(axis=0)
    rounding = len(x) * np.finfo(np.float64).eps * abs(x).max(axis=0)  # all that a constant may spread by
    return x.mean(axis=0), np.where(spread > rounding, spread, 1.0)


def scaled(x: NDArray[np.float64], scale: tuple[NDArray[np.float64], NDArray[np.float64]]) -> NDArray[np.float32]:
    centre, spread = scale
    return ((x - centre) / spread).astype(np.float32)
