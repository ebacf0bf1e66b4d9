"""Trees of maps: hierarchical mixtures of PPCA (Bishop & Tipping 1998; theory 6.4).

Every node is one Gaussian with a few directions: a map of the rows that belong to it. Rows belong
to nodes softly. Node i has responsibilities R_ni, and its children maximise

    Σ_n R_ni ln Σ_j π_{j|i} p(x_n | i, j),

which is a mixture of PPCA whose rows weigh R_ni: `fit_mixture` is all that is needed. A child has
R_n,ij = R_ni R_{n,j|i}.

Read `Node`, `HierarchyModel`, then `fit_hierarchy`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Annotated, Any
from warnings import catch_warnings, simplefilter

import numpy as np
from scipy.cluster.hierarchy import fcluster, linkage

from dualpca.arrays import Array, backend, cached_property
from dualpca.data import Host, InMemoryTable, Table, in_memory
from dualpca.errors import CollapseWarning, DegenerateError, expected, warn
from dualpca.gaussian import is_count
from dualpca.models.clusters import Labels
from dualpca.models.driver import History
from dualpca.models.emissions import Emissions
from dualpca.models.kernel_space import KernelSpace
from dualpca.models.mixture import (
    Mixture,
    MixtureModel,
    MixtureRequest,
    MixtureSelection,
    fit_mixture,
    open_space,
    row_weights,
)

ROOT = -1
"""Parent of the root."""


@dataclass(frozen=True)
class Node:
    """One node of a tree of maps: a Gaussian, and where it stands.

    Parameters
    ----------
    index : int
        Number of the node; 0 is the root. Nodes of a level follow each other.
    parent : int or None
    children : tuple of int
        () for a leaf.
    depth : int
        0 for the root.
    weight : float
        Product of the π_{j|i} from the root to the node.
    n_rows : float
        Σ_n R_ni of the training rows, with their weights.
    mean, loadings : arrays of shape (d,) and (d, q)
        μ and W, in the units of X.
    components, explained_variance : arrays of shape (q, d) and (q,)
        Principal axes and the variances along them.
    noise_variance : float
        σ².
    selection : MixtureSelection or None
        How the number of components below the node was chosen.
    """

    index: int
    parent: int | None
    children: tuple[int, ...]
    depth: int
    weight: float
    n_rows: float
    mean: Array
    loadings: Array
    components: Array
    explained_variance: Array
    noise_variance: float
    selection: MixtureSelection | None


@dataclass(frozen=True)
class HierarchyModel:
    """A tree of maps.

    Siblings are one mixture. Nodes are numbered through the families: the root, its children, the
    children of the first of them that has any, and so on.

    Parameters
    ----------
    families : tuple of MixtureModel
        The first is the root alone.
    parents : array of int of shape (f,)
        Number of the node whose children a family is; −1 for the first.
    masses : array of shape (N,)
        Σ_n R_ni of every node, training rows with their weights.
    loglikelihood : float
        Of the training rows, under the mixture of the leaves.
    selections : tuple of MixtureSelection or None
        Of every node.
    space : KernelSpace or None
        Where the mixtures live, if there is a kernel.
    """

    families: Annotated[tuple[MixtureModel, ...], "f", ">= 1"]
    parents: Annotated[Array, "whole f", ">= -1"]
    masses: Annotated[Array, "N", ">= 0"]
    loglikelihood: Annotated[float, "or nan, or inf"]
    selections: Annotated[tuple[MixtureSelection | None, ...], "N"]
    space: Annotated[KernelSpace, "m d"] | None = None

    def __post_init__(self) -> None:
        """Refuse what is no tree: a family has a parent before it, and no two have the same."""
        counts = [one.mixture.emissions.K for one in self.families]
        if not makes_tree([int(p) for p in self.parents], counts, len(self.masses)):
            raise ValueError("families and parents of a hierarchy make no tree")
        dims = {one.mixture.emissions.dim for one in self.families}
        if len(dims) > 1 or (self.space is not None and dims != {self.space.m}):
            raise ValueError("nodes of a hierarchy differ in dimension")
        if any(one.space is not None for one in self.families):
            raise ValueError("the space of a hierarchy is kept once, beside its families")

    # --- the tree ------------------------------------------------------------------------

    @cached_property
    def places(self) -> list[tuple[int, int]]:
        """Family, and component in it, of every node."""
        counts = [one.mixture.emissions.K for one in self.families]
        return [(f, k) for f, K in enumerate(counts) for k in range(K)]

    @cached_property
    def children(self) -> list[tuple[int, ...]]:
        """Numbers of the children of every node; () for a leaf."""
        found: list[tuple[int, ...]] = [()] * len(self.places)
        for f, parent in enumerate(self.parents):
            if parent != ROOT:
                own = [i for i, (family, _) in enumerate(self.places) if family == f]
                found[int(parent)] = tuple(own)
        return found

    @property
    def leaves(self) -> Host:
        """Numbers of the nodes without children."""
        return np.array([i for i, below in enumerate(self.children) if not below])

    def parent(self, node: int) -> int:
        """Return the number of a node's parent; −1 for the root."""
        return int(self.parents[self.places[node][0]])

    @cached_property
    def depths(self) -> list[int]:
        """Steps from the root to every node."""
        found: list[int] = []
        for node in range(len(self.places)):
            found.append(0 if node == 0 else found[self.parent(node)] + 1)
        return found

    @property
    def depth(self) -> int:
        """Largest of them."""
        return max(self.depths)

    @cached_property
    def weights(self) -> Host:
        """Product of π_{j|i} from the root to every node, (N,), in float64."""
        found = np.ones(len(self.places))
        for node in range(1, len(found)):
            f, k = self.places[node]
            pi = float(backend.to_numpy(self.families[f].mixture.weights)[k])
            found[node] = found[self.parent(node)] * pi
        return found

    @property
    def shape(self) -> list[Any]:
        """The tree as nested lists: one for every child of the root, with one for each of its."""
        return _nested(self.children, 0)

    @property
    def ranks(self) -> list[int]:
        """Number of directions of every node."""
        return [self.families[f].mixture.emissions.ranks[k] for f, k in self.places]

    @cached_property
    def nodes(self) -> list[Node]:
        """All nodes, the root first."""
        return [self._node(i) for i in range(len(self.places))]

    def _node(self, i: int) -> Node:
        f, k = self.places[i]
        model, parent, mass = self.families[f], self.parent(i), backend.to_numpy(self.masses)
        e = model.mixture.emissions
        return Node(
            i,
            None if parent == ROOT else parent,
            self.children[i],
            self.depths[i],
            float(self.weights[i]),
            float(mass[i]),
            e.means[k, :],
            e.loadings[k],
            model.components[k],
            model.variances[k],
            float(e.noises[k]),
            self.selections[i],
        )

    # --- the density at the leaves ---------------------------------------------------------

    @cached_property
    def mixture(self) -> Mixture:
        """Σ over leaves of their weights and densities, in float64."""
        parts = [self.families[f].working.emissions.take([k]) for f, k in self._leaf_places]
        xp, first = backend.namespace(parts[0].means), parts[0].means
        joined = Emissions(
            xp.concat([one.means for one in parts]),
            tuple(one.loadings[0] for one in parts),
            xp.concat([one.noises for one in parts]),
        )
        own = self.weights[self.leaves]
        return Mixture(backend.asarray(own / np.sum(own), first), joined)

    @property
    def _leaf_places(self) -> list[tuple[int, int]]:
        return [self.places[i] for i in self.leaves]

    def n_parameters(self) -> int:
        """Return the number of free parameters of the mixture of the leaves."""
        return self.mixture.n_parameters()

    @property
    def history(self) -> History:
        """How the fits of all families went, together."""
        every = [one.history for one in self.families]
        steps, done = max(one.n_iter for one in every), all(one.converged for one in every)
        stopped = any(one.interrupted for one in every)
        return History((self.loglikelihood,), steps, done, stopped)

    # --- rows ----------------------------------------------------------------------------

    def points(self, rows: Array) -> Array:
        """Return what the nodes are densities of: the rows, or ψ(x) in the space of the kernel."""
        return rows if self.space is None else self.space(rows)

    def responsibilities(self, rows: Array) -> Array:
        """Return R_ni of every node, (n, N): 1 for the root; children share what their parent has.

        R_n,ij = R_ni R_{n,j|i}.
        """
        return self.shared(self.points(rows))

    @property
    def matter(self) -> bool:
        """True if errors of parameters add something that shows to answers about any node."""
        return any(one.matter for one in self.families)

    def probabilities(self, rows: Array) -> Array:
        """Return R_ni, (n, N), averaged in every family over what its parameters may be."""
        return self.shared(self.points(rows), estimated=True)

    def shared(self, points: Array, *, estimated: bool = False) -> Array:
        """Return R_ni of points, (n, N)."""
        xp, found = backend.namespace(points), list[Array]()
        for f, family in enumerate(self.families):
            unsure = estimated and family.matter
            one = family.probabilities if unsure else family.working.responsibilities
            own = one(points)
            if f:
                own = own * found[int(self.parents[f])][:, None]
            found += [own[:, k] for k in range(int(own.shape[1]))]
        return xp.stack(found, axis=1)

    def log_density(self, rows: Array) -> Array:
        """Return ln p of what each row observed, under the mixture of the leaves, (n,)."""
        return self.mixture.log_density(self.points(rows))

    def posterior(self, rows: Array, node: int, *, estimated: bool = False) -> tuple[Array, Array]:
        """Return mean and covariance of the latents on the map of one node."""
        f, k = self.places[node]
        return self.families[f].posterior(self.points(rows), k, estimated=estimated)

    def coordinates(self, rows: Array) -> Array:
        """Return E[z | x, i] on the maps of all nodes side by side, (n, Σq_i)."""
        points, found = self.points(rows), list[Array]()
        for family in self.families:
            e = family.working.emissions
            table = e.table(points)
            found += [e.posterior_means(table, k) for k in range(e.K)]
        return backend.namespace(rows).concat(found, axis=1)


def makes_tree(parents: Sequence[int], counts: Sequence[int], nodes: int) -> bool:
    """Return True if every family but the first, the root, has a parent of its own before it."""
    before = np.cumsum([0, *counts])
    if len(parents) != len(counts) or parents[0] != ROOT or counts[0] != 1 or before[-1] != nodes:
        return False
    known = all(0 <= p < n for p, n in zip(parents[1:], before[1:-1], strict=True))
    return known and len(set(parents)) == len(parents)


def _nested(children: Sequence[tuple[int, ...]], node: int) -> list[Any]:
    return [_nested(children, child) for child in children[node]]


# --- The fit -------------------------------------------------------------------------------------

BIC = "bic"

Tree = list[Any]
"""One for every child, each a tree."""

Plan = str | tuple[int, ...] | Tree
"""What is asked for from a node on: 'bic', numbers per level, or a tree."""

MAP = 2
"""Directions of a map."""

NEGLIGIBLE = 1e-9
"""Responsibility below which a row has no part in the fit of what is below a node."""


@dataclass(frozen=True)
class HierarchyRequest(MixtureRequest):
    """What `fit_hierarchy` needs to know, checked; the rest is that of its mixtures."""

    children: str | int | Sequence[Any] = BIC
    max_depth: int | None = None
    gap: float = 2.0

    def below(self, plan: Plan, depth: int) -> int | str:
        """Return how many children a node has, by what is asked for from it on: 0, or 'bic'."""
        if self.max_depth is not None and depth >= self.max_depth:
            return 0
        if isinstance(plan, str):
            return plan
        return len(plan) if isinstance(plan, list) else (*plan, 0)[0]


def plan_of(children: object) -> Plan:
    """Return children as they were asked for: 'bic', a tuple of a number per level, or a tree.

    Examples
    --------
    >>> plan_of(3), plan_of([2, 3]), plan_of([[], [[], []]])
    ((3,), (2, 3), [[], [[], []]])
    """
    if isinstance(children, str) and children == BIC:
        return BIC
    if isinstance(children, list) and _is_tree(children):
        return children
    numbers = [children] if is_count(children) else children
    several = isinstance(numbers, list | tuple | np.ndarray)
    if several and all(is_count(c) and c >= 1 for c in numbers):  # type: ignore[attr-defined]
        return tuple(int(c) for c in numbers)  # type: ignore[attr-defined]
    what = "'bic', a number, one for every level as in [2, 3], or a tree of lists, [[], [[], []]]"
    raise ValueError(expected("children", what, children))


def _is_tree(value: object) -> bool:
    return isinstance(value, list) and all(map(_is_tree, value))


def _plans(plan: Plan, K: int) -> list[Plan]:
    """Return what is asked for below each of K children."""
    if isinstance(plan, list):
        return plan
    return [plan if isinstance(plan, str) else plan[1:]] * K


def standing_apart(means: Host, gap: float) -> Host:
    """Return groups of components, (K,), numbered from 0: all are one if none stands apart.

    The groups are the fewest that have `gap` times as far from one to the next, between nearest
    components, as any component of a group has to the rest of it (single linkage).

    Examples
    --------
    >>> import numpy as np
    >>> standing_apart(np.array([[0.0], [1.0], [2.0], [20.0], [21.0]]), 2.0)
    array([0, 0, 0, 1, 1])
    >>> standing_apart(np.arange(4.0)[:, None], 2.0)
    array([0, 0, 0, 0])
    """
    if len(means) > 2:
        joins = linkage(means, "single")
        for groups, (bridge, inside) in enumerate(pairwise(joins[::-1, 2]), start=2):
            if bridge > 0 and bridge >= gap * inside:
                return np.asarray(fcluster(joins, groups, "maxclust"), dtype=np.int64) - 1
    return np.zeros(len(means), dtype=np.int64)


Selected = MixtureSelection | None
"""How the number of a node's children was chosen, if it was."""


VIEW = 5
"""Directions of a node in which clusters are looked for, at most."""

VERY_STRONG = 5.0
"""By how much −BIC/2 must rise for a node to have children: very strong evidence, a factor of 150.

(Kass & Raftery 1995.) Of a few dozen rows that are one Gaussian BIC finds two in one of ten.
"""


def clusters_of(
    rows: InMemoryTable, request: HierarchyRequest, least: float
) -> tuple[Labels | None, Selected]:
    """Return the clusters of rows, (n,), None for one, and how BIC chose their number.

    They are looked for along the leading directions of the rows, as many as BIC finds, with
    components of any number of directions: how many clusters there are has nothing to do with the
    directions of a map. Where components form groups that stand apart, in units of their pooled
    covariance, the groups are the clusters. One of no more rows than `least` is shared out among
    the others.
    """
    if rows.n < 2:
        return None, None
    with catch_warnings():  # of clusters that are looked at, and not kept
        simplefilter("ignore", CollapseWarning)
        one = fit_mixture(rows, replace(request, n_mixtures=1, n_components=BIC))
        axes = one.components[0] @ one.mixture.emissions.loadings[0]  # z along principal axes
        Z = backend.working(one.posterior(rows.rows, 0)[0])
        Y = Z @ backend.working(axes).T
        Y = Y[:, : min(VIEW, int(Y.shape[1]))]
        view = InMemoryTable(Y, rows.weights)
        found = fit_mixture(view, replace(request, n_mixtures=BIC, n_components=BIC))
    mixture, selection = found.mixture, found.selection
    if gained(selection) < VERY_STRONG:
        return None, selection
    pi, means = (backend.to_numpy(A) for A in (mixture.weights, mixture.emissions.means))
    pooled = np.tensordot(pi, backend.to_numpy(found.covariances), axes=1)
    groups = standing_apart(np.linalg.solve(np.linalg.cholesky(pooled), means.T).T, request.gap)
    members = np.equal.outer(groups if groups.any() else np.arange(len(pi)), np.arange(len(pi)))
    shares = backend.to_numpy(found.responsibilities(Y)) @ members
    enough = backend.to_numpy(rows.weights) @ shares > least
    clusters = np.unique(np.argmax(np.where(enough, shares, -1.0), axis=1), return_inverse=True)[1]
    return (clusters if clusters.any() else None), selection


def gained(selection: Selected) -> float:
    """Return by how much −BIC/2 of the best number of components is above that of one."""
    if selection is None:
        return 0.0
    scores = zip(selection.candidates, selection.scores, strict=True)
    return max(selection.scores) - max(score for (K, _), score in scores if K == 1)


def _require_rows(rows: int, count: int, node: int) -> None:
    """Refuse more children than rows."""
    if count <= rows and rows > 1:
        return
    if node > 0:  # the tree ends here
        raise DegenerateError(f"node {node} has {rows} rows for {count} children")
    what = f"at most {rows} below the root, the number of rows"
    raise ValueError(expected("children", what, count, "Ask for fewer children, or use more rows."))


def _warn_of_leaves(nodes: Sequence[int]) -> None:
    """Warn where nodes that were to have children have none."""
    if nodes:
        shown = ", ".join(map(str, nodes[:10])) + (", …" if len(nodes) > 10 else "")
        warn(
            f"the tree is smaller than asked for: node{'s' * (len(nodes) > 1)} {shown} got no "
            "children, with fewer rows than children, or rows all alike. Ask for fewer children or "
            "levels, or use more rows.",
            CollapseWarning,
        )


def fit_hierarchy(table: Table, request: HierarchyRequest) -> HierarchyModel:
    """Fit a tree of maps from the root on: children are a mixture over rows that weigh R_ni.

    Costs that of a mixture of all rows in every level, and a choice of sizes for every node: rows
    of a responsibility below `NEGLIGIBLE` have no part in the fit of a node's children.
    """
    whole, space = in_memory(table, "Load them: every node reads the rows again."), None
    if request.kernel is not None:
        space, whole = open_space(whole, request)
    X, w = whole.rows, backend.to_numpy(row_weights(whole.rows, whole.weights))
    rng, q = request.start, request.n_components or min(MAP, whole.d)
    least = 1.0 + (
        1 if isinstance(q, str) else int(np.max(q))
    )  # rows of which a map of q directions leaves nothing
    request = replace(request, kernel=None, n_components=q)

    def seeded(**given: Any) -> HierarchyRequest:
        return replace(request, rng=int(rng.integers(2**63 - 1)), **given)

    def siblings(node: int, count: int | str) -> tuple[MixtureModel | None, Selected]:
        """Return the children of a node, if it is to have any, and how their number was chosen."""
        index = np.flatnonzero(shares[node] * (w > 0) > NEGLIGIBLE)
        weights = backend.asarray((shares[node] * w)[index], X)
        rows = InMemoryTable(backend.take(X, index), weights)
        if not count:
            return None, None
        if not isinstance(count, str):
            _require_rows(len(index), count, node)
            return fit_mixture(rows, seeded(n_mixtures=count)), None
        clusters, selection = clusters_of(rows, seeded(), least)
        if clusters is None:
            return None, selection
        return fit_mixture(rows, seeded(n_mixtures=int(clusters.max()) + 1), clusters), selection

    families, parents = [fit_mixture(whole, seeded(n_mixtures=1))], [ROOT]
    shares, plans, depths, places = [np.ones(whole.n)], [plan_of(request.children)], [0], [(0, 0)]
    selections, refused = list[Selected](), list[int]()
    while len(selections) < len(shares):
        node = len(selections)
        count = request.below(plans[node], depths[node])
        try:
            family, selection = siblings(node, count)
        except DegenerateError:  # rows that are too few, or all alike, have no parts
            family, selection = None, None
            refused += [node] if count != BIC else []
        selections.append(selection)
        if family is None:
            continue
        own = backend.to_numpy(family.responsibilities(X)) * shares[node][:, None]
        shares += list(own.T)
        plans += _plans(plans[node], own.shape[1])
        depths += [depths[node] + 1] * own.shape[1]
        places += [(len(families), k) for k in range(own.shape[1])]
        families.append(family)
        parents.append(node)
        if family.history.interrupted:
            selections += [None] * (len(shares) - len(selections))
    _warn_of_leaves(refused)
    masses = np.array([float(w @ own) for own in shares])
    model = HierarchyModel(
        tuple(families), np.array(parents), masses, 0.0, tuple(selections), space
    )
    value = float(w @ backend.to_numpy(model.mixture.log_density(X)))
    return replace(model, loglikelihood=value)
