"""operators/spread.py: products shared by devices, against the matrix and against one device."""

import pickle

import numpy as np
import pytest

from dualpca import KernelPCA
from dualpca.kernels import RBF, Laplacian, Linear, Polynomial
from dualpca.operators import Devices, Dual, Fused, Gram, Spread, dual
from dualpca.operators import fused as points_fused
from dualpca.operators import spread as shared
from dualpca.operators.fused import FusedPoints
from dualpca.operators.spread import Share, TileShare, added
from dualpca.solvers import solve

torch = pytest.importorskip("torch", reason="devices are torch's")

CPU = torch.device("cpu")
KERNELS = {"linear": Linear(), "rbf": RBF(0.3), "polynomial": Polynomial(2)}


@pytest.fixture
def fused(monkeypatch):
    pytest.importorskip("triton", reason="fused passes are Triton programs")
    for module in (shared, dual, points_fused):
        monkeypatch.setattr(module, "can_fuse", lambda X, kernel: True)


def rows(n, d=4):
    return np.random.default_rng(0).normal(size=(n, d))


def block(n, b=3):
    return np.random.default_rng(1).normal(size=(n, b))


def spread(X, kernel, count, **options):
    return Spread(torch.asarray(X), kernel, Devices([CPU] * count), **options)


@pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)
@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("n", [2, 3, 25, 301])
def test_products_are_those_of_the_matrix_for_any_number_of_shares(kernel, count, n):
    X, V = rows(n), block(n)
    K = kernel(X, X)
    gram = spread(X, kernel, count)
    close = {"rtol": 0, "atol": 1e-12 * np.abs(K).max() * n}
    for found in (gram.times, gram.times_in_double):
        np.testing.assert_allclose(found(torch.asarray(V)).numpy(), K @ V, **close)
    np.testing.assert_allclose(gram.whole().numpy(), K, **close)
    np.testing.assert_allclose(gram.diag().numpy(), np.diag(K), **close)


@pytest.mark.parametrize("n,count", [(2, 3), (7, 2), (300, 3), (1000, 4), (64, 64)])
def test_every_tile_is_that_of_one_share_and_shares_are_even(n, count):
    shares = [
        TileShare(rows(n), RBF(0.3), k, count, single=False, stored=True) for k in range(count)
    ]
    seen = np.zeros((n, n), dtype=int)
    for share in shares:
        for a, b, _ in share.tiles():
            seen[a, b] += 1
            if a != b:
                seen[b, a] += 1
    assert (seen == 1).all()
    sizes = [len(share._tiles) for share in shares]
    assert max(sizes) - min(sizes) <= 1


@pytest.mark.parametrize("stored", [True, False])
def test_single_precision_is_that_of_one_device(stored):
    X, V = rows(400).astype(np.float32), torch.asarray(block(400))
    one = Gram(torch.asarray(X), RBF(0.3), single=True, stored=stored)
    many = spread(X, RBF(0.3), 3, single=True, stored=stored)
    assert many.single and many.keep == stored and not many.coarse
    np.testing.assert_allclose(many.times(V), one.times(V), rtol=0, atol=2e-4)
    np.testing.assert_allclose(
        many.times_in_double(V), one.times_in_double(V), rtol=0, atol=1e-12 if not stored else 1e-4
    )
    K = RBF(0.3)(X.astype(float), X.astype(float))
    np.testing.assert_allclose(many.whole(), K, atol=1e-12)


def test_stored_tiles_are_kept_by_the_shares_and_by_nobody_else():
    gram = spread(rows(300), RBF(0.3), 2, stored=True)
    V = torch.asarray(block(300))
    gram.times(V)
    assert "_kept" not in vars(gram)
    kept = [share.gram._kept for share in gram.shares.parts]
    assert all(len(tiles) > 0 for tiles in kept)
    gram.times(V)
    assert all(
        share.gram._kept is tiles for share, tiles in zip(gram.shares.parts, kept, strict=True)
    )
    for share in gram.shares.parts:
        assert "gram" not in vars(pickle.loads(pickle.dumps(share)))


def test_each_share_runs_in_a_thread_of_its_own():
    import threading

    seen, meet = [], threading.Barrier(3, timeout=30)
    gram = spread(rows(100), RBF(0.3), 3)
    for share in gram.shares.parts:
        original = share.piece

        def piece(ask, V, original=original):
            meet.wait()  # which only threads side by side pass
            seen.append(threading.get_ident())
            return original(ask, V)

        share.piece = piece
    gram.times(torch.asarray(block(100)))
    assert len(set(seen)) == 3


def test_an_error_of_one_share_is_raised():
    gram = spread(rows(50), RBF(0.3), 2)
    with pytest.raises(Exception, match=r"size|shape|dimension|mat"):
        gram.times(torch.asarray(block(49)))


@pytest.mark.parametrize("w", [None, np.linspace(0.5, 2, 200)], ids=["plain", "weighted"])
@pytest.mark.parametrize("solver", ["krylov", "dense"])
def test_eigenpairs_are_those_of_one_device(w, solver):
    X = rows(200)
    weights = None if w is None else torch.asarray(w)
    one = solve(Dual(Gram(torch.asarray(X), RBF(0.1)), None, weights), 4, solver=solver)
    many = solve(Dual(spread(X, RBF(0.1), 3), None, weights), 4, solver=solver)
    np.testing.assert_allclose(many.values, one.values, rtol=1e-10)
    np.testing.assert_allclose(many.vectors, one.vectors, atol=1e-9)
    assert many.trace == pytest.approx(one.trace, rel=1e-12)


def test_pieces_are_added_where_they_belong():
    pieces = [(slice(2, 5), np.full((3, 2), 1.0)), (slice(0, 3), np.full((3, 2), 10.0))]
    where, total = added(pieces)
    assert where == slice(0, 5)
    np.testing.assert_array_equal(total[:, 0], [10, 10, 11, 1, 1])
    assert (pieces[0][1] == 1).all()  # what comes in is not modified


def test_host_points_may_have_their_products_elsewhere():
    """A cluster's rows are NumPy's in this process, and on a GPU of the worker."""
    X, V = rows(40), block(40)
    gram = Spread(X, RBF(0.3), Devices([CPU]))
    found = gram.times(V)
    assert isinstance(found, np.ndarray)
    np.testing.assert_allclose(found, RBF(0.3)(X, X) @ V, atol=1e-12)


def test_a_matrix_beyond_the_limit_is_refused():
    gram = spread(rows(40), RBF(0.3), 2, limit=8 * 39**2)
    with pytest.raises(Exception, match=r"kernel matrix of 40 rows.*n_components"):
        gram.whole()


def test_a_share_works_on_the_device_it_is_told(monkeypatch):
    from dualpca.arrays import devices

    monkeypatch.setattr(devices, "_gpu", lambda name: CPU)
    share = Share(rows(30), 0, 1, kernel=RBF(0.3), device="cuda")
    where, found = share.piece("times", block(30))
    assert isinstance(found, torch.Tensor) and where == slice(0, 30)
    host = Share(rows(30), 0, 1, kernel=RBF(0.3), device="cpu").piece("times", block(30))[1]
    assert isinstance(host, np.ndarray)
    np.testing.assert_allclose(found, host, atol=1e-12)


# --- fused passes, which Triton interprets where there is no GPU ---------------------------------


@pytest.mark.parametrize("kernel", [RBF(0.3), Laplacian(0.4), Polynomial(3)], ids=str)
@pytest.mark.parametrize("n,count", [(300, 1), (300, 3), (2, 3)])
def test_fused_shares_are_rows_of_the_product(kernel, n, count, fused):
    X, V = torch.asarray(rows(n, 5)), torch.asarray(block(n))
    gram = Spread(X, kernel, Devices([CPU] * count), single=True)
    assert gram.single and gram.coarse and not gram.keep
    pieces = [share.piece("times", V) for share in gram.shares.parts]
    assert [rows.start for rows, _ in pieces] == [n * k // count for k in range(count)]
    wanted = kernel(X, X) @ V
    one = Fused(FusedPoints(X, kernel))
    found, together = gram.times(V), one.times(V)
    np.testing.assert_allclose(found, together, rtol=0, atol=1e-6 * float(together.abs().max()))
    assert float((gram.times_in_double(V) - wanted).norm() / wanted.norm()) < 2e-6
    led = kernel(X, X[::2]) @ V[::2]
    assert float((gram.led(2, V[::2]) - led).norm() / led.norm()) < 2e-3
    assert gram.thinned(2).n == len(X[::2])


def test_shares_too_wide_for_float32_are_in_double(fused):
    X = torch.asarray(rows(60)) * 1e4
    gram = Spread(X, RBF(0.3), Devices([CPU] * 2), single=True, stored=True)
    assert not gram.single and not gram.coarse and gram.keep


def test_kernel_pca_through_fused_shares(fused):
    X = rows(300, 8) * np.linspace(3, 0.3, 8)
    model = KernelPCA(4, kernel="rbf", gamma=0.05, tol=1e-5, eigen_solver="krylov")
    wanted = KernelPCA(4, kernel="rbf", gamma=0.05).fit(X)
    found = model.set_params(device=["cpu", "cpu"]).fit(X)
    np.testing.assert_allclose(found.eigenvalues_, wanted.eigenvalues_, rtol=1e-5)
