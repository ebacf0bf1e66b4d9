"""One iteration driver: EM with acceleration, quasi-Newton, records, progress, checkpoints, Ctrl-C.

Any EM is a map θ ↦ θ' that also reports the log-likelihood of θ. `maximize` accelerates the map
by Anderson's extrapolation, keeps it only if the likelihood did not fall, and stops on an estimate
of the distance that is left, not on the size of the last step. `iterate` repeats a step on any
state, and `descend` is quasi-Newton; all three share records and checkpoints.
`try_candidates` fits one candidate after the other: sizes, starts or folds.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, Protocol, TypeVar

import numpy as np
from scipy import optimize

from dualpca.arrays import Array, Tick, backend, task
from dualpca.data import Host
from dualpca.errors import DegenerateError, InterruptWarning, expected, warn

# --- Checkpoints: what the driver needs of them --------------------------------------------------

State = tuple[dict[str, Host], dict[str, Any]]
"""Arrays, and numbers that JSON can hold."""


class Keeper:
    """Keeps the state of one fit now and then; this one keeps nothing, for fits without checkpoint.

    `state` is what an earlier fit left, or None. `also` gives numbers to keep with every state, for
    a fit in several stages.
    """

    state: State | None = None
    also: Callable[[], dict[str, Any]] = dict

    def offer(self, state: Callable[[], State], *, now: bool = False) -> None:
        """Keep the state if the last one is old enough."""

    def done(self) -> None:
        """Forget the state: the fit has ended."""


class Watch(Protocol):
    """A checkpoint that was requested, before the data are known."""

    def over(self, n: float, mean: Array, variance: Array, **told: str) -> Keeper:
        """Return the keeper of a fit to n rows of these means and variances.

        `told` is what else identifies the data, such as where sequences end.
        """


@dataclass(frozen=True, kw_only=True)
class IterativeRequest:
    """What every request for an iterative fit holds: where to start, when to stop."""

    tol: float = 1e-6
    max_iter: int = 1000
    rng: int | np.random.Generator = 0  # seed or generator, for the start
    watch: Watch | None = None

    @property
    def start(self) -> np.random.Generator:
        """The generator that starts the iterations."""
        return np.random.default_rng(self.rng)

    @property
    def limits(self) -> dict[str, Any]:
        """When to stop, and the checkpoint."""
        return {"tol": self.tol, "max_iter": self.max_iter, "watch": self.watch}


Cost = Callable[[Host], tuple[float, Host]]
"""x ↦ (value, slope)."""


class Tape:
    """A cost that remembers its values, so that a minimiser can be led back to where it was.

    The memory of quasi-Newton cannot be saved; but it is deterministic: given the same values and
    slopes again, which needs no pass over the rows, it takes the same steps.

    Parameters
    ----------
    cost : callable
    keeper : Keeper
        Where its state holds a tape, that is played first.
    before : State
        What else is to be written: how the minimiser came to its start.

    Notes
    -----
    A tape holds p + 1 numbers per call, for p parameters.
    """

    def __init__(self, cost: Cost, keeper: Keeper, before: State = ({}, {})) -> None:
        self.cost, self.keeper, self.before, self.played = cost, keeper, before, 0
        arrays = {} if keeper.state is None else keeper.state[0]
        self.values = [float(v) for v in arrays.get("values", ())]
        self.slopes = list(arrays.get("slopes", ()))
        if len(self.values) != len(self.slopes):
            raise ValueError(expected("slopes", f"{len(self.values)}, one a value", self.slopes))

    def __call__(self, x: Host) -> tuple[float, Host]:
        """Return value and slope: played, or computed and taped."""
        k, self.played = self.played, self.played + 1
        if k == len(self.values):
            try:
                value, slope = self.cost(x)
            except KeyboardInterrupt:
                if self.values:
                    self.keeper.offer(self.state, now=True)
                raise
            self.values.append(float(value))
            self.slopes.append(np.array(slope))
            self.keeper.offer(self.state)
        slope = np.array(self.slopes[k], dtype=np.float64)
        if slope.shape != x.shape:  # compiled code trusts it
            raise ValueError(expected("a slope", f"of shape {x.shape}", slope.shape))
        return self.values[k], slope

    def state(self) -> State:
        """Return all values and slopes so far."""
        arrays, numbers = self.before
        taped = {"values": np.array(self.values), "slopes": np.stack(self.slopes)}
        return arrays | taped, dict(numbers)


# --- Records -------------------------------------------------------------------------------------

NEGLIGIBLE_FALL, NEGLIGIBLE_GAIN = 1e-12, 1e-13
"""Relative changes of a log-likelihood that are rounding error."""


@dataclass
class Record:
    """How an EM run went: the log-likelihood of every point it kept, in order."""

    loglikelihoods: list[float] = field(default_factory=list)
    n_iter: int = 0
    converged: bool = False
    interrupted: bool = False

    @classmethod
    def of(cls, state: State) -> Record:
        """Return the record in a state of a checkpoint."""
        arrays, numbers = state
        values = [float(v) for v in arrays["loglikelihoods"]]
        return cls(values, int(numbers["n_iter"]), bool(numbers.get("converged", False)))

    def with_state(self, arrays: dict[str, Host], numbers: dict[str, Any]) -> State:
        """Return a state for a checkpoint, with the record in it."""
        arrays = arrays | {"loglikelihoods": np.array(self.loglikelihoods)}
        return arrays, numbers | {"n_iter": self.n_iter, "converged": self.converged}

    def accepts(self, value: float) -> bool:
        """Return True if a log-likelihood is no worse than the last one."""
        last = self.loglikelihoods[-1] if self.loglikelihoods else -math.inf
        return value >= last - NEGLIGIBLE_FALL * abs(last) if math.isfinite(last) else value >= last

    @property
    def ended(self) -> bool:
        """True if no step is to come, whatever their number."""
        return self.converged or self.interrupted

    def raise_interrupted(self) -> None:
        """Raise the Ctrl-C that ended this fit, for whoever counts on a whole one."""
        if self.interrupted:
            raise KeyboardInterrupt

    def add(self, value: float) -> None:
        """Append the log-likelihood of a point that is kept."""
        self.loglikelihoods.append(value)


@dataclass(frozen=True)
class History:
    """How a fit went, as its model keeps it."""

    # of every point that was kept
    loglikelihoods: Annotated[tuple[Annotated[float, "or nan, or inf"], ...], "k", ">= 1"]
    n_iter: Annotated[int, ">= 0"]
    converged: bool
    interrupted: bool = False
    endless: bool = False  # a stream: there is nothing to converge to

    @classmethod
    def of(cls, record: Record, *, endless: bool = False) -> History:
        """Return the history of a fit from its record."""
        values = tuple(record.loglikelihoods)
        return cls(values, record.n_iter, record.converged, record.interrupted, endless)

    @property
    def loglikelihood(self) -> float:
        """The last one."""
        return self.loglikelihoods[-1]


# --- EM on a vector, accelerated -----------------------------------------------------------------

Step = Callable[[Array], tuple[Array, float] | tuple[Array, float, Array]]
"""θ ↦ (θ', log-likelihood of θ), for a vector θ; a bolder θ″ may follow.

θ' is no less likely than θ. θ″ comes closer to the maximum, with the same fixed points, but may
fail. One that fails `MOST_DOUBTS` times in a row is not tried again.
"""

MEMORY, MOST_DOUBTS = 10, 2
"""Moves that an extrapolation rests on, and failures of bolder steps that end them."""

SLOWEST_RATE = 1 - 1e-4
"""Slowest linear convergence that an extrapolation, and an estimate of what is left, assume."""

SAME_MOVES = 1e-12
"""Share of the squares of moves below which a combination of them is rounding error."""


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
        θ ↦ (θ', log-likelihood of θ), and a bolder θ″ if there is one.
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
        Of a checkpoint; where it holds a state the iteration resumes from it.

    Returns
    -------
    theta : array of shape (p,)
    record : Record
        Ctrl-C ends the iteration as `max_iter` does: nothing is lost.

    Examples
    --------
    >>> import numpy as np
    >>> slow = lambda t: (0.99 * t + 0.01, -float((t[0] - 1) ** 2))
    >>> theta, record = maximize(slow, np.array([5.0]))
    >>> theta.round(6), record.n_iter < 20
    (array([1.]), True)
    """
    record, keeper = Record(), keeper or Keeper()
    with task("EM step", max_iter) as tick:
        climb = _Climb(step, theta, record, tick, accelerate, keeper.state)
        whole = climb.snapshot()  # resuming in the middle of a cycle would take other steps
        try:
            while record.n_iter < max_iter and not record.converged:
                climb.advance(tol, max_iter)
                keeper.offer(climb.state)
                whole = climb.snapshot()
        except KeyboardInterrupt:
            record.interrupted = True
            keeper.offer(whole.state, now=True)
    return climb.image, record


class _Climb:
    """Where EM is: a point θ that was kept, its image, a bolder image, and the last moves."""

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
        self.accelerate, self.close, self.doubts = accelerate, 0, 0
        self.moves: list[tuple[Array, Array]] = []  # of θ, and of the way to its image
        if state is None:
            self.image, value, self.bold = self.evaluate(theta)
            record.add(value)
            return
        arrays, numbers = state
        kept = {name: backend.asarray(A, theta) for name, A in arrays.items()}
        self.theta, self.image = kept["theta"], kept["image"]
        self.bold = kept.get("bold", self.image)
        self.moves = [(move[0, ...], move[1, ...]) for move in _rows(kept["moves"])]
        self.close, self.doubts = int(numbers["close"]), int(numbers["doubts"])
        vars(record).update(vars(Record.of(state)))

    def state(self) -> State:
        """Return all that the next step depends on."""
        points = {"theta": self.theta, "image": self.image}
        if self.bold is not self.image:
            points["bold"] = self.bold
        arrays = {name: backend.to_numpy(A) for name, A in points.items()}
        moves = [[backend.to_numpy(A) for A in move] for move in self.moves]
        arrays["moves"] = np.array(moves).reshape(len(moves), 2, self.theta.shape[0])
        return self.record.with_state(arrays, {"close": self.close, "doubts": self.doubts})

    def snapshot(self) -> _Climb:
        """Return a copy that later steps do not change."""
        other = copy(self)
        other.record = replace(self.record, loglikelihoods=[*self.record.loglikelihoods])
        other.moves = [*self.moves]
        return other

    def evaluate(self, at: Array) -> tuple[Array, float, Array]:
        """Take one EM step; the image stands for a bolder one where there is none."""
        self.record.n_iter += 1
        image, value, *bold = self.step(at)
        self.tick(f"log-likelihood {value:.6g}")
        return image, value, bold[0] if bold else image

    @property
    def target(self) -> Array:
        """The image whose distance from θ is to vanish."""
        return self.image if self.doubts >= MOST_DOUBTS else self.bold

    def advance(self, tol: float, max_iter: int) -> None:
        """Move to the first of these that is likely enough: extrapolation, bold image, image."""
        record, target = self.record, self.target
        way = target - self.theta
        rest, left = self.extrapolated(way)
        self.close = self.close + 1 if left <= tol else 0
        record.converged = self.close == 2
        if record.converged:
            return
        if self.accelerate and rest is not None and self.tried(self.theta + rest, way, max_iter):
            return
        if target is not self.image and self.tried(target, way, max_iter):
            self.doubts = 0
            return
        if target is not self.image:
            self.doubts += 1
            way = self.target - self.theta
        self.tried(self.image, way, max_iter, sure=True)

    def tried(self, at: Array, way: Array, max_iter: int, *, sure: bool = False) -> bool:
        """Move to a point unless it is less likely and not sure; return True if this step ends."""
        if self.record.n_iter >= max_iter:
            return True
        try:
            image, value, bold = self.evaluate(at)
        except DegenerateError:  # no density there
            if sure:
                raise
            value = -math.inf
        if not sure and not self.record.accepts(value):
            self.moves = []  # they misled
            return False
        self.record.add(value)
        before, self.theta, self.image, self.bold = self.theta, at, image, bold
        move = (at - before, self.target - at - way)
        self.moves = [*self.moves, move][-MEMORY if self.accelerate else -1 :]
        return True

    def extrapolated(self, way: Array) -> tuple[Array | None, float]:
        """Return the way to where `way` vanishes, as the last moves say, and its relative length.

        Anderson's extrapolation: Newton's step for f(θ) = θ' − θ within the span of the moves,
        whose Jacobian is known from what they changed of f, and f itself beyond. There
        eigenvalues of the wrong sign, which would lead to a saddle, are turned (Dauphin et al.
        2014), and those below 1 − `SLOWEST_RATE` lifted to it.
        """
        if _norm(way) == 0:
            return None, 0.0
        if not self.moves:
            return None, math.inf
        xp, k = backend.namespace(way), len(self.moves)
        moved, changed = (xp.stack(list(parts)) for parts in zip(*self.moves, strict=True))
        products = moved @ xp.concat([moved, changed, way[None, :]], axis=0).T
        products = backend.to_numpy(products)
        share = _newton(products[:, :k], -products[:, k:-1], products[:, -1])
        if share is None:
            return None, math.inf
        rest = way + backend.asarray(share, way) @ (moved + changed)
        return rest, _norm(rest) / max(_norm(self.theta + rest), float(np.finfo(np.float64).tiny))


def _rows(A: Array) -> list[Array]:
    return [A[i, ...] for i in range(A.shape[0])]


def _newton(G: Host, A: Host, b: Host) -> Host | None:
    """Solve Ac = b, for products of moves with each other (G) and with b, as `extrapolated` says.

    Eigenvalues are those of G⁻¹A; None where they cannot be found.
    """
    unit = np.sqrt(np.diagonal(G))
    if not (np.all(np.isfinite(A)) and np.all(unit > 0)):
        return None
    g, E = np.linalg.eigh(G / np.outer(unit, unit))
    kept = g > SAME_MOVES * g[-1]
    P = E[:, kept] / np.sqrt(g[kept]) / unit[:, None]
    try:
        a, Z = np.linalg.eig(P.T @ A @ P)
        b = np.linalg.solve(Z, P.T @ b)
    except np.linalg.LinAlgError:
        return None
    a = np.abs(a.real) + 1j * a.imag
    found: Host = P @ (Z @ (b / np.where(np.abs(a) < 1 - SLOWEST_RATE, 1 - SLOWEST_RATE, a))).real
    return found if np.all(np.isfinite(found)) else None


def _norm(x: Array) -> float:
    return float(backend.namespace(x).linalg.vector_norm(x))


@dataclass(frozen=True)
class Packing:
    """How loadings W (d, q) and noise ψ (k,) become one vector, θ = (W/root, …, ln ψ/square).

    In these units steps in all of them are comparable. Every extrapolation has a density: ψ/square
    stays between `floor` and e^`ceiling`.
    """

    d: int
    root: Array | float  # (d, 1)
    square: Array  # (k,)
    floor: Array  # (k,)
    ceiling: float = 50.0

    def pack(self, W: Array, psi: Array, *others: Array) -> Array:
        """Return θ, with other vectors in between."""
        xp = backend.namespace(W)
        share = xp.maximum(psi / self.square, self.floor)
        return xp.concat([xp.reshape(W / self.root, (-1,)), *others, xp.log(share)])

    def unpack(self, theta: Array, q: int) -> tuple[Array, Array, Array]:
        """Return W, ψ, and the vectors between them."""
        xp, size, k = backend.namespace(theta), self.d * q, int(self.square.shape[0])
        W = xp.reshape(theta[:size], (self.d, q)) * self.root
        psi = xp.exp(xp.clip(theta[-k:], xp.log(self.floor), self.ceiling)) * self.square
        return W, psi, theta[size:-k]


@contextmanager
def if_singular(message: str) -> Iterator[None]:
    """Raise a DegenerateError with this message if a matrix factorisation fails."""
    try:
        yield
    except Exception as error:
        if not backend.is_linalg_error(error):
            raise
        raise DegenerateError(message) from error


# --- Steps on any state --------------------------------------------------------------------------

SLOWEST_GAIN = 0.99
"""Slowest shrinking of gains that an estimate of those to come assumes."""

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
    if gain <= NEGLIGIBLE_GAIN * abs(values[-1]):
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
    anew: Callable[[Point], bool] = lambda state: False,
    label: str = "EM step",
    keeper: Keeper | None = None,
    pack: Callable[[Point], State] = lambda state: ({}, {}),
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
        Name of a step where progress is shown.
    keeper : Keeper, optional
        Of a checkpoint. Where it holds a state the iteration resumes from it; every step is
        offered to it, and it is done at the end unless the fit was interrupted.
    pack : callable, optional
        state ↦ (arrays, numbers), for the keeper. The record is stored with them, under the
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
    keeper = keeper or Keeper()
    if keeper.state is not None and unpack is not None:
        state, record = unpack(keeper.state), Record.of(keeper.state)
    else:
        state, record = begin()
    if record.interrupted:  # not where this fit would have started: nothing to resume from
        return state, record
    done = stop or (lambda record: left_to_gain(record.loglikelihoods) <= tol)

    def packed() -> State:
        return record.with_state(*pack(state))

    with task(label, max_iter) as tick:
        try:
            while record.n_iter < max_iter and not record.ended:
                after, value = step(state)
                kept = [] if anew(after) else record.loglikelihoods
                fresh = Record([*kept, value], record.n_iter + 1)
                fresh.converged = done(fresh)
                state, record = after, fresh
                tick(f"log-likelihood {value:.6g}")
                keeper.offer(packed)
        except KeyboardInterrupt:
            if not record.loglikelihoods:
                raise
            record.interrupted = True
    if record.interrupted:
        keeper.offer(packed, now=True)
    else:
        keeper.done()
    return state, record


# --- Quasi-Newton --------------------------------------------------------------------------------


def descend(
    cost: Cost,
    x: Host,
    bounds: list[tuple[float | None, float | None]] | optimize.Bounds,
    record: Record,
    loglikelihood: Callable[[float], float],
    tol: float,
    max_iter: int,
    keeper: Keeper | None = None,
    **others: float,
) -> Host:
    """Minimise a smooth cost within bounds by L-BFGS and return where it ends; Ctrl-C is safe.

    The record gets every step that is kept, with the log-likelihood of its cost. `others` are
    further options of SciPy's minimiser.
    """
    begun = record.n_iter
    if keeper is not None and type(keeper) is not Keeper:  # without a checkpoint, no tape
        cost = Tape(cost, keeper, record.with_state({"theta": x}, {}))
    with task("quasi-Newton step", max_iter) as tick:

        def keep(intermediate_result: optimize.OptimizeResult) -> None:
            nonlocal x
            x, value = np.array(intermediate_result.x), float(intermediate_result.fun)
            record.n_iter += 1
            record.add(loglikelihood(value))
            tick(f"cost {value:.6g}")

        limits = {"maxiter": max_iter, "gtol": tol, "ftol": 1e-15, "maxcor": 20} | others
        options: dict[str, Any] = {"bounds": bounds, "callback": keep, "options": limits}
        try:
            found = optimize.minimize(cost, x, jac=True, method="L-BFGS-B", **options)
        except KeyboardInterrupt:
            if record.n_iter == begun:
                raise
            record.interrupted = True
            return x
    record.converged = bool(found.success)
    if not record.loglikelihoods:  # the start was the minimum
        record.add(loglikelihood(float(found.fun)))
    return np.asarray(found.x)


# --- Candidates: sizes, starts, folds ------------------------------------------------------------

Candidate = TypeVar("Candidate")
Result = TypeVar("Result")


def try_candidates(
    candidates: Iterable[Candidate],
    fit: Callable[[Candidate, Tick], Result],
    *,
    label: str,
    total: int,
    stop: Callable[[list[Result]], bool] | None = None,
    ends: type[Exception] | tuple[type[Exception], ...] = (),
) -> tuple[list[Result], bool]:
    """Fit candidates in their order and return what each gave, and whether Ctrl-C ended it.

    Ctrl-C keeps the results of the candidates that are done, and is raised if there is none. A fit
    that keeps it in a record passes it on by `Record.raise_interrupted`.

    Parameters
    ----------
    candidates : iterable
        A generator may look at what earlier ones gave before it yields the next.
    fit : callable
        (candidate, tick) ↦ result. It calls `tick(message)` once per unit of `total`.
    label : str
        Name of a unit where progress is shown.
    total : int
        Units in all, at most.
    stop : callable, optional
        Results so far ↦ True if no further candidate is needed; asked after each of them.
    ends : exception or tuple of them, optional
        What a candidate raises beyond which there are none; it is raised if it is the first.

    Examples
    --------
    >>> def fit(size, tick):
    ...     tick(f"{size} components")
    ...     return -abs(size - 3)
    >>> worse = lambda scores: scores[-1] < max(scores)
    >>> try_candidates(range(1, 100), fit, label="size", total=99, stop=worse)
    ([-2, -1, 0, -1], False)
    """
    results: list[Result] = []
    # one candidate alone: what is shown are its own steps
    with task(label, total) if total > 1 else nullcontext(lambda text="": None) as tick:
        try:
            for candidate in candidates:
                results.append(fit(candidate, tick))
                if stop is not None and stop(results):
                    break
        except ends:
            if not results:
                raise
        except KeyboardInterrupt:
            if not results:
                raise
            return results, True
    return results, False


def best_of_starts(
    starts: Sequence[Candidate],
    fit: Callable[[Candidate], Result],
    record: Callable[[Result], Record],
    merit: Callable[[Result], tuple[float, ...]] | None = None,
) -> Result:
    """Fit from every start and return the best; Ctrl-C ends the fit that it meets, and the rest.

    By `merit`, or by the last log-likelihood of its record.
    """

    def tried(start: Candidate, tick: Tick) -> Result:
        found = fit(start)
        tick(f"log-likelihood {record(found).loglikelihoods[-1]:.6g}")
        return found

    def interrupted(runs: list[Result]) -> bool:
        return record(runs[-1]).interrupted

    total = len(starts)
    runs, _ = try_candidates(starts, tried, label="start", total=total, stop=interrupted)
    return max(runs, key=merit or (lambda run: (record(run).loglikelihoods[-1],)))


def warn_interrupted(done: str) -> None:
    """Say on which candidates a choice rests that Ctrl-C ended."""
    warn(f"the choice of n_components was interrupted: it rests on {done}.", InterruptWarning)
