"""One browser, and one criscope for each capture, for all tests of the page."""

import sys

import pytest

from tests.unit.replayed import DATA
from tests.web.browser import Shown, browsing, replayed, serving


@pytest.fixture(scope="session")
def browser():
    with browsing() as running:
        yield running


def _served(name):
    @pytest.fixture(scope="session", name=name)
    def served(tmp_path_factory):
        with replayed(DATA / f"{name}.jsonl.gz", tmp_path_factory.mktemp(name)) as url:
            yield url

    return served


truth = _served("truth")
slowcni = _served("slowcni")


@pytest.fixture(scope="session")
def many(tmp_path_factory):
    with serving([sys.executable, "-m", "tests.web.many"], tmp_path_factory.mktemp("many")) as url:
        yield url


@pytest.fixture
def open_page(browser):
    """Opens pages, which must have had no error and asked no other host when the test is over."""
    pages = []

    def opened(url, fragment="", **context):
        pages.append(Shown(browser, url, fragment, **context))
        return pages[-1]

    yield opened
    for each in pages:
        each.close()
