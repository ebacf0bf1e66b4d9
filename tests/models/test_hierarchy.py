"""Trees of maps, judged by a dense EM with weights, by PPCA and by trees that were planted."""

import tracemalloc

import numpy as np
import pytest
from scipy.stats import multivariate_normal
from sklearn.datasets import load_iris

import dualpca
from dualpca import PPCA, HierarchicalPPCA, KernelPCA, MixturePPCA
from dualpca.errors import CollapseWarning
from dualpca.models.hierarchy import plan_of, standing_apart
from tests.tolerances import assert_close

TIGHT = {"tol": 1e-12, "max_iter": 5000, "standardize": False}


def planted(seed, d=10, n=100):
    """Return rows of 2 × 3 clusters: two places 20 apart, three clusters 4 apart around each."""
    rng = np.random.default_rng(seed)
    far = rng.normal(size=d)
    near = [np.linalg.qr(rng.normal(size=(d, 3)))[0].T * 3.0 for _ in range(2)]
    places = [10 * far / np.linalg.norm(far), -10 * far / np.linalg.norm(far)]
    centres = np.concatenate([places[i] + near[i] for i in range(2)])
    truth = np.repeat(np.arange(6), n)
    return centres[truth] + 0.5 * rng.normal(size=(6 * n, d)), truth


@pytest.fixture(scope="module")
def overlapping():
    """Return rows whose clusters overlap, with weights, and a tree of two levels, [2, 2]."""
    rng = np.random.default_rng(3)
    centres = np.array([[-4, -1.2, 0, 0], [-4, 1.2, 0, 0], [4, 0, -1.2, 0], [4, 0, 1.2, 0]])
    X = np.repeat(centres, 40, axis=0) + rng.normal(size=(160, 4)) * [1.5, 0.7, 0.7, 0.3]
    w = rng.integers(1, 4, size=160).astype(float)
    return X, w, HierarchicalPPCA([2, 2], 1, **TIGHT).fit(X, sample_weight=w)


# --- the dense reference: every covariance as a matrix, every step as written --------------------


def dense_step(X, R, pi, means, covariances, q):
    """Take one EM step of Σ_n R_n ln Σ_j π_j N(x_n; μ_j, C_j), C_j = WWᵀ + σ²I of q directions."""
    every = zip(pi, means, covariances, strict=True)
    joint = np.stack([p * multivariate_normal(m, C).pdf(X) for p, m, C in every], axis=1)
    resp = R[:, None] * joint / joint.sum(axis=1, keepdims=True)
    after = ([], [], [])
    for r in resp.T:
        mean = r @ X / r.sum()
        S = (X - mean).T @ ((X - mean) * r[:, None]) / r.sum()
        values, V = np.linalg.eigh(S)
        noise = values[:-q].mean()
        C = V[:, -q:] @ np.diag(values[-q:] - noise) @ V[:, -q:].T + noise * np.eye(len(mean))
        for kept, value in zip(after, (r.sum() / R.sum(), mean, C), strict=True):
            kept.append(value)
    return *(np.array(part) for part in after), resp


def covariance(node):
    d = len(node.mean)
    return node.loadings @ node.loadings.T + node.noise_variance * np.eye(d)


def test_children_are_a_fixed_point_of_dense_em_with_the_responsibilities_of_their_parent(
    overlapping,
):
    X, w, model = overlapping
    R, nodes = model.responsibilities(X), model.nodes_
    for parent in nodes:
        if not parent.children:
            continue
        own = [nodes[i] for i in parent.children]
        pi = np.array([one.weight / parent.weight for one in own])
        means = np.array([one.mean for one in own])
        C = np.array([covariance(one) for one in own])
        weights = w * R[:, parent.index]
        after = dense_step(X, weights, pi, means, C, 1)
        assert_close(after[0], pi, "em", scale=200.0)  # a likelihood to 1e-12 is a root to 1e-6
        assert_close(after[1], means, "em", scale=200.0)
        assert_close(after[2], C, "em", scale=200.0)
        assert_close(after[3] / w[:, None], R[:, list(parent.children)], "exact", scale=10.0)
        assert_close([one.n_rows for one in own], after[3].sum(axis=0), "em", scale=1e4)


def test_the_children_of_a_fuzzy_node_are_not_those_of_its_own_rows(overlapping):
    X, w, model = overlapping
    node = model.nodes_[1]
    hard = model.responsibilities(X)[:, 1] > 0.5
    alone = MixturePPCA(2, 1, **TIGHT).fit(X[hard], sample_weight=w[hard])
    own = np.array([model.nodes_[i].mean for i in node.children])
    assert 1e-4 < np.abs(alone.means_ - own).max() < 1.0


def test_responsibilities_are_shared_out_from_the_root_on(overlapping):
    X, _, model = overlapping
    R = model.responsibilities(X)
    assert_close(R[:, 0], np.ones(len(X)), "exact")
    for node in model.nodes_:
        if node.children:
            assert_close(R[:, list(node.children)].sum(axis=1), R[:, node.index], "exact")
            total = sum(model.nodes_[i].weight for i in node.children)
            assert_close(total, node.weight, "exact")
    fixed = model.predict_proba(X, parameters="fixed")
    assert_close(fixed, R[:, model.leaves_], "exact")
    unsure = model.predict_proba(X, parameters="estimated")
    assert_close(unsure.sum(axis=1), np.ones(len(X)), "exact")
    assert np.all(unsure.max(axis=1) < fixed.max(axis=1) + 1e-12)
    assert np.array_equal(model.predict(X), model.leaves_[R[:, model.leaves_].argmax(axis=1)])


def test_the_density_is_that_of_the_leaves(overlapping):
    X, w, model = overlapping
    nodes = [model.nodes_[i] for i in model.leaves_]
    dense = sum(one.weight * multivariate_normal(one.mean, covariance(one)).pdf(X) for one in nodes)
    assert_close(model.score_samples(X), np.log(dense), "em")
    assert_close(model.loglikelihood_, w @ np.log(dense), "em")
    assert model.n_parameters_ == 4 * (4 + 4 + 1) + 3
    assert_close(model.bic(X), -2 * np.log(dense).sum() + model.n_parameters_ * np.log(160), "em")


def test_maps_are_posterior_means_of_every_node(overlapping):
    X, _, model = overlapping
    blocks = model.transform(X)
    for node in model.nodes_:
        W, s2 = node.loadings, node.noise_variance
        M = W.T @ W + s2 * np.eye(1)
        z = (X - node.mean) @ W @ np.linalg.inv(M)
        assert_close(blocks[:, [node.index]], z, "vector", scale=10.0)
        mean, C = model.posterior(X, node.index, parameters="fixed")
        assert_close(mean, z, "vector", scale=10.0)
        assert np.all(model.posterior(X, node.index, parameters="estimated")[1] > C)
        assert_close(C[0], s2 * np.linalg.inv(M), "vector", scale=10.0)


# --- limits --------------------------------------------------------------------------------------


def test_a_root_alone_is_ppca():
    X = load_iris().data
    model, ppca = HierarchicalPPCA(max_depth=0).fit(X), PPCA(2).fit(X)
    assert model.children_ == [] and model.leaves_.tolist() == [0]
    assert_close(model.score(X), ppca.score(X), "em")
    assert_close(np.abs(model.transform(X)), np.abs(ppca.transform(X)), "vector", scale=10.0)


def test_one_level_is_a_mixture_of_ppca():
    X, _ = planted(0, n=30)
    model, mixture = HierarchicalPPCA(6, 2, **TIGHT).fit(X), MixturePPCA(6, 2, **TIGHT).fit(X)
    assert_close(model.loglikelihood_, mixture.loglikelihood_, "em")
    for parameters in ("fixed", "estimated"):
        found, wanted = (m.predict_proba(X, parameters=parameters) for m in (model, mixture))
        assert_close(found, wanted, "em")


def test_with_a_kernel_it_is_the_tree_of_kernel_pca_coordinates():
    X, _ = planted(1, 4, 20)
    options = {"random_state": 0, **TIGHT}
    model = HierarchicalPPCA([2, 2], kernel="rbf", kernel_params={"gamma": 0.01}, n_directions=6)
    model.set_params(**options).fit(X)
    Z = KernelPCA(6, kernel="rbf", gamma=0.01).fit_transform(X)
    plain = HierarchicalPPCA([2, 2], **options).fit(Z)
    assert_close(model.loglikelihood_, plain.loglikelihood_, "em")
    both = model.responsibilities(X), plain.responsibilities(Z)
    assert_close(np.sort(both[0].sum(axis=0)), np.sort(both[1].sum(axis=0)), "em", scale=100.0)


def test_weights_count_as_repeated_rows():
    X, _ = planted(2, 3, 10)
    w = np.random.default_rng(0).integers(0, 4, size=len(X))
    weighted = HierarchicalPPCA([2, 2], **TIGHT).fit(X, sample_weight=w)
    repeated = HierarchicalPPCA([2, 2], **TIGHT).fit(np.repeat(X, w, axis=0))
    assert_close(weighted.loglikelihood_, repeated.loglikelihood_, "em")
    a, b = ([one.n_rows for one in m.nodes_] for m in (weighted, repeated))
    assert_close(a, b, "em", scale=100.0)


# --- trees that were planted ---------------------------------------------------------------------


@pytest.mark.parametrize(("d", "n"), [(10, 100), (20, 60)])
def test_a_planted_tree_of_two_by_three_is_found_by_default(d, n):
    found = 0
    for seed in range(10):
        X, truth = planted(seed, d, n)
        model = HierarchicalPPCA().fit(X)
        if model.children_ != [[[], [], []], [[], [], []]]:
            continue
        own = [np.bincount(model.predict(X[truth == k]), minlength=9) for k in range(6)]
        assert min(max(count) for count in own) >= 0.95 * n
        parents = [model.nodes_[int(count.argmax())].parent for count in own]
        assert parents in ([1] * 3 + [2] * 3, [2] * 3 + [1] * 3)
        found += 1
    assert found >= 9


def test_noise_has_no_children():
    leaves = [
        HierarchicalPPCA().fit(np.random.default_rng(s).normal(size=(40, d))).leaves_.tolist()
        for s in range(5)
        for d in (1, 2, 6)
    ]
    assert leaves == [[0]] * 15


def test_rows_that_are_all_alike_are_a_leaf():
    X = np.repeat([[0.0, 0.0, 0.0], [9.0, 1.0, 2.0]], 20, axis=0)
    with pytest.warns(dualpca.errors.CollapseWarning):
        model = HierarchicalPPCA([2, 2], 1, standardize=False).fit(X)
    assert model.children_ == [[], []]


def test_a_flat_tree_where_nothing_stands_apart():
    X, _ = planted(0)
    assert HierarchicalPPCA(gap=1e9).fit(X).children_ == [[]] * 6
    assert HierarchicalPPCA(gap=1e9, max_depth=1).fit(X).depth_ == 1


def test_missing_values_hide_no_tree():
    X, truth = planted(4, 8, 40)
    gaps = np.where(np.random.default_rng(0).random(X.shape) < 0.1, np.nan, X)
    model = HierarchicalPPCA().fit(gaps)
    assert model.children_ == [[[], [], []], [[], [], []]]
    agree = [np.bincount(model.predict(gaps[truth == k])).max() for k in range(6)]
    assert min(agree) >= 39
    assert_close(model.predict_proba(gaps).sum(axis=1), np.ones(len(X)), "exact")


# --- what is asked for ---------------------------------------------------------------------------


@pytest.mark.parametrize("tree", [[[], []], [[], [[], []]], [[[], []], [[], [], []]]], ids=str)
def test_a_tree_by_hand(tree):
    X, _ = planted(0, 4, 30)
    model = HierarchicalPPCA(tree).fit(X)
    shape = model.children_
    assert sorted(map(len, shape)) == sorted(map(len, tree))
    again = HierarchicalPPCA(shape).fit(X)
    assert sorted(map(len, again.children_)) == sorted(map(len, tree))


def test_numbers_are_of_levels():
    X, _ = planted(0, 4, 30)
    assert HierarchicalPPCA([2, 3]).fit(X).children_ == [[[], [], []]] * 2
    assert HierarchicalPPCA(np.array([2, 3]), max_depth=1).fit(X).children_ == [[], []]
    assert plan_of(3) == (3,) == plan_of([3])


@pytest.mark.parametrize("children", ["aic", 0, [2, 0], [[], 2], 1.5, {}, [2, "bic"]], ids=repr)
def test_what_is_no_tree_is_refused(children):
    with pytest.raises(ValueError, match=r"children must be 'bic', a number"):
        HierarchicalPPCA(children).fit(load_iris().data)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ({"gap": 0.5}, "gap"),
        ({"max_depth": -1}, "max_depth"),
        ({"n_components": 0}, "n_components"),
        ({"n_components": "cv"}, "n_components"),
        ({"n_components": 9}, "n_components"),
        ({"noise_floor": 0}, "noise_floor"),
    ],
    ids=str,
)
def test_bad_parameters_are_named(given, name):
    with pytest.raises(ValueError, match=name):
        HierarchicalPPCA(2, **given).fit(load_iris().data)
    model = HierarchicalPPCA(2).fit(load_iris().data)
    with pytest.raises(ValueError, match="node must be below 3"):
        model.posterior(load_iris().data, 3)


def test_groups_stand_apart_or_not():
    line = np.arange(8.0)[:, None]
    assert not standing_apart(line, 2.0).any()
    assert not standing_apart(line[:2], 2.0).any() and not standing_apart(line[:1], 2.0).any()
    two = np.concatenate([line, line + 100])
    assert standing_apart(two, 2.0).tolist() in ([0] * 8 + [1] * 8, [1] * 8 + [0] * 8)
    # the coarsest groups come first, those inside them below
    four = np.concatenate([line[:3], line[:3] + 30, line[:3] + 1000, line[:3] + 1030])
    assert len(set(standing_apart(four, 2.0).tolist())) == 2


# --- Trees that were asked for, and rows that are too few for them -------------------------------


@pytest.mark.filterwarnings("ignore:components collapsed")
@pytest.mark.parametrize(("children", "n"), [([5, 5], 20), ([20, 20], 30), ([2, 15, 2], 24)])
def test_nodes_of_too_few_rows_stay_leaves(children, n):
    X = np.random.default_rng(0).normal(size=(30, 4))[:n]
    with pytest.warns(CollapseWarning, match="the tree is smaller than asked for") as found:
        model = HierarchicalPPCA(children).fit(X)
    assert len(model.children_) == children[0]
    short = [i for i in model.leaves_ if model.nodes_[i].depth < len(children)]
    (said,) = (str(one.message) for one in found if "smaller" in str(one.message))
    assert f"node{'s' * (len(short) > 1)} {', '.join(map(str, short[:10]))}" in said
    assert np.isfinite(model.score(X))


def test_more_children_of_the_root_than_rows_are_refused():
    X = np.random.default_rng(0).normal(size=(20, 3))
    X[3] = np.nan  # nothing was observed
    for children in (25, [20, 2], [[]] * 21):
        with pytest.raises(ValueError, match="children must be at most 19 below the root, the"):
            HierarchicalPPCA(children).fit(X)


def test_rows_that_are_all_alike_end_a_tree_that_was_asked_for():
    X = np.repeat([[0.0, 0.0], [5.0, 5.0]], 20, axis=0)
    with pytest.warns(CollapseWarning) as found:
        model = HierarchicalPPCA([2, 2]).fit(X)
    assert model.children_ == [[], []]
    assert "nodes 1, 2 got no children" in str(found[-1].message)


def test_coordinates_of_many_rows_need_no_covariances():
    rng, n, d = np.random.default_rng(0), 8000, 20
    X = rng.normal(size=(n, d))
    model = HierarchicalPPCA([2], d - 1, max_iter=2, tol=1.0, n_init=1).fit(X[:300])
    wanted = np.concatenate([model.posterior(X[:50], i)[0] for i in range(3)], axis=1)
    tracemalloc.start()
    found = model.transform(X)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert_close(found[:50], wanted, "vector")
    assert peak < 8 * n * (d - 1) ** 2
