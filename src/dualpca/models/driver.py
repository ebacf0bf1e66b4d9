"""One iteration driver: EM with acceleration, quasi-Newton, records, progress, checkpoints, Ctrl-C.

Any EM is a map θ ↦ θ' that also reports the log-likelihood of θ. The loop accelerates the map
with SQUAREM (Varadhan & Roland 2008), keeps an extrapolation only if the likelihood did not fall,
and stops on an estimate of the distance that is left, not on the size of the last step.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol, TypeVar

import numpy as np
from scipy import optimize

from dualpca.arrays import Array, Tick, backend, task
from dualpca.errors import DegenerateError

# --- Long fits that can be stopped: what the driver asks of a checkpoint, whoever writes it ------

Host = np.ndarray[Any, Any]
State = tuple[dict[str, Host], dict[str, Any]]
"""Arrays, and numbers that JSON can hold."""


class Keeper(Protocol):
    """Keeps the state of one fit now and then; `state` is what an earlier one left, or None.

    `also` gives numbers to keep with every state, for a fit in several stages.
    """

    state: State | None
    also: Callable[[], dict[str, Any]]

    def offer(self, state: Callable[[], State], *, now: bool = False) -> None:
        """Keep the state if the last one is old enough."""

    def done(self) -> None:
        """Forget the state: the fit has ended."""


class Watch(Protocol):
    """A checkpoint that was asked for, before the data are known."""

    def over(self, n: float, mean: Array, variance: Array, **told: str) -> Keeper:
        """Return the keeper of a fit to n rows of these means and variances, and what else is told.

        What is told belongs to the data, such as where sequences end.
        """


Cost = Callable[[Host], tuple[float, Host]]
"""x ↦ (value, slope)."""


class Tape:
    """A cost that remembers what it said, so that a minimiser can be led back to where it was.

    Quasi-Newton keeps a memory that nobody can save; but it is deterministic: told the same values
    and slopes again, which takes no look at any row, it takes the same steps.

    Parameters
    ----------
    cost : callable
    keeper : Keeper
        Where its state holds a tape, that is played first.
    before : State
        What else is to be written: how the minimiser came to its start.

    Notes
    -----
    A tape holds p + 1 numbers a call, for p parameters.
    """

    def __init__(self, cost: Cost, keeper: Keeper, before: State = ({}, {})) -> None:
        self.cost, self.keeper, self.before, self.played = cost, keeper, before, 0
        arrays = {} if keeper.state is None else keeper.state[0]
        self.values = [float(v) for v in arrays.get("values", ())]
        self.slopes = list(arrays.get("slopes", ()))

    def __call__(self, x: Host) -> tuple[float, Host]:
        """Return value and slope: played, or computed and taped."""
        k, self.played = self.played, self.played + 1
        if k == len(self.values):
            value, slope = self._computed(x)
            self.values.append(float(value))
            self.slopes.append(np.array(slope))
            self.keeper.offer(self.state)
        return self.values[k], np.array(self.slopes[k])

    def _computed(self, x: Host) -> tuple[float, Host]:
        """Ask the cost; whoever interrupts it finds all that was said before in the file."""
        try:
            return self.cost(x)
        except KeyboardInterrupt:
            if self.values:
                self.keeper.offer(self.state, now=True)
            raise

    def state(self) -> State:
        """Return all that has been said."""
        arrays, numbers = self.before
        taped = {"values": np.array(self.values), "slopes": np.stack(self.slopes)}
        return arrays | taped, dict(numbers)


# --- One EM loop with one convergence record, and quasi-Newton with the same manners -------------
#
# Any EM is a map θ ↦ θ' that also reports the log-likelihood of θ. The loop accelerates the map
# with SQUAREM (Varadhan & Roland 2008), keeps an extrapolation only if the likelihood did not fall,
# and stops on an estimate of the distance that is left, not on the size of the last step.

Step = Callable[[Array], tuple[Array, float]]
"""θ ↦ (θ', log-likelihood of θ), for a vector θ."""

Vector = np.ndarray[Any, np.dtype[np.float64]]

SLOWEST = 1 - 1e-4
LONGEST_LEAP, SHORTEST_LEAP = 1e6, 2.0
"""Bounds of an extrapolation: it grows while it serves and shrinks when it does not."""


ROUNDING = 1e-12
"""Relative fall of a log-likelihood that is rounding error."""

NO_GAIN, SLOWEST_GAIN = 1e-13, 0.99
"""Relative gain that is rounding error, and the slowest shrinking of gains that is believed."""


@dataclass
class Record:
    """How an EM run went: the log-likelihood of every point it kept, in order."""

    loglikelihoods: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    interrupted: bool = False

    def accepts(self, value: float) -> bool:
        """Return True if a log-likelihood is no worse than the last one."""
        last = self.loglikelihoods[-1] if self.loglikelihoods else -math.inf
        return value >= last - ROUNDING * abs(last) if math.isfinite(last) else value >= last

    @property
    def ended(self) -> bool:
        """Whether there is no step to come, whatever their number."""
        return self.converged or self.interrupted

    def copy(self) -> Record:
        """Return a record that later steps do not change."""
        return replace(self, loglikelihoods=list(self.loglikelihoods))

    def add(self, value: float) -> None:
        """Note the log-likelihood of a point that is kept."""
        self.loglikelihoods.append(value)


@dataclass(frozen=True)
class History:
    """How a fit went, as its model keeps it."""

    loglikelihoods: tuple[float, ...]  # of every point that was kept
    n_iter: int
    converged: bool
    interrupted: bool = False
    endless: bool = False  # a stream: there is nothing to converge to

    @classmethod
    def of(cls, record: Record, *, endless: bool = False) -> History:
        """Return what a record says at the end of a fit."""
        values = tuple(record.loglikelihoods)
        return cls(values, record.n_iter, record.converged, record.interrupted, endless)

    @property
    def loglikelihood(self) -> float:
        """The last one."""
        return self.loglikelihoods[-1]


def maximize(
    step: Step,
    theta: Array,
    *,
    tol: float = 1e-6,
    max_iter: int = 1000,
    accelerate: bool = True,
    keeper: Keeper | None = None,
) -> tuple[Array, Record]:
    """Iterate an EM map to its fixed point.

    Parameters
    ----------
    step : callable
        θ ↦ (θ', log-likelihood of θ).
    theta : array of shape (p,)
        Start.
    tol : float
        Estimated relative distance to the fixed point at which to stop. The log-likelihood is
        then within about tol² of its maximum, in relative terms.
    max_iter : int
        Largest number of EM steps.
    accelerate : bool
        Extrapolate; otherwise plain EM.
    keeper : Keeper, optional
        Of a checkpoint; where it holds a state the iteration goes on from there.

    Returns
    -------
    theta : array of shape (p,)
    record : Record
        An interruption by the keyboard ends the iteration as `max_iter` does: nothing is lost.

    Examples
    --------
    >>> import numpy as np
    >>> slow = lambda t: (0.99 * t + 0.01, -float((t[0] - 1) ** 2))
    >>> theta, record = maximize(slow, np.array([5.0]))
    >>> theta.round(6), record.n_iter < 20
    (array([1.]), True)
    """
    record = Record()
    with task("EM step", max_iter) as tick:
        state = None if keeper is None else keeper.state
        climb = _Climb(step, theta, record, tick, accelerate, state)
        whole: list[State] = []  # as the last whole cycle left it: half of one leads elsewhere
        try:
            while record.n_iter < max_iter and not record.converged:
                whole[:] = [] if keeper is None else [climb.state()]
                climb.cycle(tol, max_iter)
                if keeper is not None:
                    keeper.offer(climb.state)
        except KeyboardInterrupt:
            record.interrupted = True
        if keeper is not None and whole and record.interrupted:
            keeper.offer(whole.pop, now=True)
    return climb.first, record


class _Climb:
    """Where EM is: a point θ that was kept, and its image `first`."""

    def __init__(
        self,
        step: Step,
        theta: Array,
        record: Record,
        tick: Tick,
        accelerate: bool,
        state: State | None = None,
    ) -> None:
        self.step, self.theta, self.record, self.tick = step, theta, record, tick
        self.close, self.reach, self.accelerate = 0, LONGEST_LEAP, accelerate
        if state is not None:
            self.restore(*state)
            return
        self.first, value = self.evaluate(theta)
        record.add(value)

    def state(self) -> State:
        """Return all that the next cycle depends on."""
        arrays = {"theta": backend.to_numpy(self.theta), "first": backend.to_numpy(self.first)}
        arrays["loglikelihoods"] = np.array(self.record.loglikelihoods)
        numbers = {"close": self.close, "reach": self.reach, "n_iter": self.record.n_iter}
        return arrays, numbers | {"converged": self.record.converged}

    def restore(self, arrays: dict[str, Any], numbers: dict[str, Any]) -> None:
        """Go back to a state."""
        like = self.theta
        self.theta = backend.asarray(arrays["theta"], like)
        self.first = backend.asarray(arrays["first"], like)
        self.record.loglikelihoods[:] = [float(v) for v in arrays["loglikelihoods"]]
        self.record.n_iter = int(numbers["n_iter"])
        self.record.converged = bool(numbers["converged"])
        self.close, self.reach = int(numbers["close"]), float(numbers["reach"])

    def evaluate(self, at: Array) -> tuple[Array, float]:
        """Take one EM step."""
        self.record.n_iter += 1
        there, value = self.step(at)
        self.tick(f"log-likelihood {value:.6g}")
        return there, value

    def attempt(self, at: Array) -> tuple[Array, float]:
        """Take one EM step from where there may be no density."""
        try:
            return self.evaluate(at)
        except DegenerateError:
            return at, -math.inf

    def cycle(self, tol: float, max_iter: int) -> None:
        """Take two EM steps; leap where they point if the likelihood allows it."""
        theta, first, record = self.theta, self.first, self.record
        second, value = self.evaluate(first)
        record.add(value)
        self.theta, self.first = first, second
        self.close = self.close + 1 if _distance(theta, first, second) <= tol else 0
        record.converged = self.close == 2
        length = min(_length(theta, first, second), self.reach) if self.accelerate else 0.0
        if record.converged or length <= 1 or record.n_iter >= max_iter:
            return
        leap = _leap(theta, first, second, length)
        landed, value = self.attempt(leap)
        if record.accepts(value):
            record.add(value)
            self.theta, self.first = leap, landed
            self.reach = min(4 * self.reach, LONGEST_LEAP)
        else:
            self.reach = max(length / 4, SHORTEST_LEAP)


Point = TypeVar("Point")
"""State of an iteration, of any kind: a model, or a model with what its last pass found."""


def left_to_gain(values: Sequence[float]) -> float:
    """Estimate the last gain and all that are to come, as if gains were geometric.

    Examples
    --------
    >>> left_to_gain([0.0, 1.0, 1.5])
    1.0
    """
    if len(values) < 2:
        return math.inf
    gain = max(values[-1] - values[-2], 0.0)
    if gain <= NO_GAIN * abs(values[-1]):
        return 0.0
    if len(values) < 3:
        return math.inf
    before = max(values[-2] - values[-3], 0.0)
    rate = min(gain / before, SLOWEST_GAIN) if before > 0 else SLOWEST_GAIN
    return gain / (1 - rate)


def iterate(
    step: Callable[[Point], tuple[Point, float]],
    begin: Callable[[], tuple[Point, Record]],
    *,
    max_iter: int,
    tol: float = 1e-6,
    stop: Callable[[Record], bool] | None = None,
    anew: Callable[[Point], bool] | None = None,
    label: str = "EM step",
    keeper: Keeper | None = None,
    pack: Callable[[Point], State] | None = None,
    unpack: Callable[[State], Point] | None = None,
) -> tuple[Point, Record]:
    """Repeat a step whose state is not a vector, until little is left to gain.

    Parameters
    ----------
    step : callable
        state ↦ (state', value of state'). It must not change the state it is given.
    begin : callable
        () ↦ (start, record of how it was found). The record is empty, or holds the value of the
        start, or all steps that were taken already: those count. It is not called on resuming.
    max_iter : int
        Largest number of steps, with those of the record.
    tol : float
        Stop once the estimated gain that is left is not above this.
    stop : callable, optional
        Another rule: record ↦ True if the iteration has converged.
    anew : callable, optional
        state ↦ True if its value cannot be compared with those before, which are then forgotten.
    label : str
        What a step is called where progress is shown.
    keeper : Keeper, optional
        Of a checkpoint. Where it holds a state the iteration resumes from there; it is told of
        every step, and that the fit is done unless it was interrupted.
    pack : callable, optional
        state ↦ (arrays, numbers), for the keeper. The record is stored beside them, under the
        names 'loglikelihoods', 'n_iter' and 'converged'.
    unpack : callable, optional
        (arrays, numbers) ↦ state.

    Returns
    -------
    state : as `step` returns it
    record : Record
        Ctrl-C ends the iteration where the last whole step left it, and sets `interrupted`;
        it is raised if there is no value yet.

    Examples
    --------
    >>> def newton(root):
    ...     root = (root + 2 / root) / 2
    ...     return root, -abs(root * root - 2)
    >>> root, record = iterate(newton, lambda: (1.0, Record()), max_iter=20)
    >>> round(root, 6), record.converged
    (1.414214, True)
    """
    if keeper is not None and keeper.state is not None and unpack is not None:
        state, record = unpack(keeper.state), _record_of(keeper.state)
    else:
        state, record = begin()
    if record.interrupted:  # not where this fit would have started: nothing to resume from
        return state, record
    done = stop or (lambda record: left_to_gain(record.loglikelihoods) <= tol)

    def packed() -> State:
        arrays, numbers = ({}, {}) if pack is None else pack(state)
        arrays = arrays | {"loglikelihoods": np.array(record.loglikelihoods)}
        return arrays, numbers | {"n_iter": record.n_iter, "converged": record.converged}

    with task(label, max_iter) as tick:
        try:
            while record.n_iter < max_iter and not record.ended:
                after, value = step(state)
                noted = [] if anew is not None and anew(after) else record.loglikelihoods
                fresh = Record([*noted, value], record.n_iter + 1)
                fresh.converged = done(fresh)
                state, record = after, fresh
                tick(f"log-likelihood {value:.6g}")
                if keeper is not None:
                    keeper.offer(packed)
        except KeyboardInterrupt:
            if not record.loglikelihoods:
                raise
            record.interrupted = True
    if keeper is not None and record.interrupted:
        keeper.offer(packed, now=True)
    elif keeper is not None:
        keeper.done()
    return state, record


def _record_of(state: State) -> Record:
    """Return the record that `iterate` stored in a state."""
    arrays, numbers = state
    values = [float(v) for v in arrays["loglikelihoods"]]
    return Record(values, int(numbers["n_iter"]), bool(numbers["converged"]))


class Descent(NamedTuple):
    """Where quasi-Newton ended."""

    x: Vector
    value: float
    n_iter: int
    converged: bool
    interrupted: bool


def descend(
    cost: Callable[[Vector], tuple[float, Vector]],
    x: Vector,
    bounds: list[tuple[float | None, float | None]],
    note: Callable[[float], None],
    tol: float,
    max_iter: int,
    **others: Any,
) -> Descent:
    """Minimise a smooth cost within bounds by L-BFGS; the keyboard may interrupt it without loss.

    `note` is told the cost at every step that is kept; `others` are further options of SciPy's.
    """
    kept: list[tuple[Vector, float, int]] = []
    with task("quasi-Newton step", max_iter) as tick:

        def keep(intermediate_result: Any) -> None:
            value = float(intermediate_result.fun)
            kept[:] = [(np.array(intermediate_result.x), value, kept[0][2] + 1 if kept else 1)]
            note(value)
            tick(f"cost {value:.6g}")

        limits = {"maxiter": max_iter, "gtol": tol, "ftol": 1e-15, "maxcor": 20} | others
        options: dict[str, Any] = {"bounds": bounds, "callback": keep, "options": limits}
        try:
            found = optimize.minimize(cost, x, jac=True, method="L-BFGS-B", **options)
        except KeyboardInterrupt:
            if not kept:
                raise
            return Descent(*kept[0], False, True)
    return Descent(found.x, float(found.fun), int(found.nit), bool(found.success), False)


def _norm(x: Array) -> float:
    return float(backend.namespace(x).linalg.vector_norm(x))


def _distance(theta: Array, first: Array, second: Array) -> float:
    """Estimate the relative distance from `second` to the limit of a linear sequence."""
    before, after = _norm(first - theta), _norm(second - first)
    rate = min(after / before, SLOWEST) if before > 0 else 0.0
    return after / (1 - rate) / max(_norm(second), float(np.finfo(np.float64).tiny))


def _length(theta: Array, first: Array, second: Array) -> float:
    """Return SQUAREM's step length S3, ‖r‖/‖v‖; 0 where the sequence does not bend."""
    r = first - theta
    bend = _norm(second - first - r)
    return _norm(r) / bend if bend > 0 else 0.0


def _leap(theta: Array, first: Array, second: Array, length: float) -> Array:
    """Return SQUAREM's extrapolation of three iterates."""
    r = first - theta
    return theta + 2 * length * r + length * length * (second - first - r)
