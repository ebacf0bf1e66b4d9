"""schemathesis tries everything that the explorer's OpenAPI allows, and much that it forbids."""

import pytest
from hypothesis import HealthCheck, given, settings

import dualpca as dp
from dualpca.app.explorer.app import create
from dualpca.app.explorer.guard import Guard
from tests.app.explorer_cases import HOST, PORT, TOKEN, fitted, session_of

schemathesis = pytest.importorskip(
    "schemathesis", reason="schemathesis is not installed: the OpenAPI is not tried"
)
pytestmark = [
    # what these packages deprecate between themselves
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
    pytest.mark.filterwarnings("ignore:.*httpx.*"),
]
THE_SAME = settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    database=None,
    suppress_health_check=list(HealthCheck),
)


def application(model):
    """The guarded application, for a client that knows neither its address nor its token."""
    guarded = Guard(create(session_of(model), "run"), TOKEN, "127.0.0.1", PORT, 1e6, 10**6)

    async def app(scope, receive, send):
        if scope["type"] == "http":
            kept = [(k, v) for k, v in scope["headers"] if k not in (b"host", b"origin")]
            own = [(b"host", HOST.encode()), (b"x-dualpca-token", TOKEN.encode())]
            scope = {**scope, "headers": kept + own}
        await guarded(scope, receive, send)

    return app


def schema_of(model):
    return schemathesis.openapi.from_asgi("/openapi.json", application(model))


@pytest.fixture(scope="module")
def linear():
    return schema_of(fitted(dp.PPCA(2)))


@pytest.fixture(scope="module")
def mixture():
    return schema_of(fitted(dp.MixturePPCA(2, 1, random_state=0)))


def try_all(schema, method, path, mode):
    """Send what the schema allows ('positive') or forbids ('negative'); every check must hold."""
    cases = schema[path][method].as_strategy(generation_mode=schemathesis.GenerationMode(mode))

    @THE_SAME
    @given(case=cases)
    def check(case):
        case.call_and_validate()

    check()


OPERATIONS = [
    *(("get", path) for path in ("/api/health", "/api/model", "/api/times")),
    *(("get", path) for path in ("/api/points/{component}", "/api/colours/{column}")),
    *(("post", f"/api/{name}") for name in ("decode", "path", "sample", "rows", "errors")),
    *(("post", f"/api/{name}") for name in ("impute", "export")),
    *(("post", f"/api/{name}") for name in ("expected", "difference", "search")),
]


@pytest.mark.parametrize(("method", "path"), OPERATIONS)
@pytest.mark.slow
def test_a_linear_model(linear, method, path):
    try_all(linear, method, path, "positive")
    if method == "post" or "{" in path:
        try_all(linear, method, path, "negative")


@pytest.mark.parametrize("name", ["decode", "path", "sample"])
def test_a_mixture(mixture, name):
    try_all(mixture, "post", f"/api/{name}", "positive")


def test_every_operation_is_tried(linear):
    found = {(op.ok().method, op.ok().path) for op in linear.get_all_operations()}
    assert found == set(OPERATIONS)
