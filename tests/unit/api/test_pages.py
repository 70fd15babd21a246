"""The files of the web page, as they are served."""

import re

import pytest

from tracer.api.pages import DIRECTORY, POLICY, Pages

NAMES = Pages().names


@pytest.mark.parametrize("name", NAMES)
def test_every_file_is_served_with_its_type_under_the_pages_policy(served, name):
    answer = served[0].get(f"/assets/{name}")
    assert answer.content == (DIRECTORY / name).read_bytes()
    kind = {"js": "text/javascript", "css": "text/css", "html": "text/html", "svg": "image/svg+xml"}
    assert answer.headers["content-type"].startswith(kind[name.rpartition(".")[2]])
    assert answer.headers["content-security-policy"] == POLICY


def test_the_page_begins_at_the_root(served):
    assert served[0].get("/").content == (DIRECTORY / "index.html").read_bytes()


def test_a_copy_of_this_version_is_not_sent_again(served):
    tag = served[0].get("/assets/main.js").headers["etag"]
    for given in (tag, f'"other", {tag}', f"W/{tag}"):
        again = served[0].get("/assets/main.js", headers={"if-none-match": given})
        assert (again.status_code, again.content, again.headers["etag"]) == (304, b"", tag)
    assert served[0].get("/assets/main.js", headers={"if-none-match": '"other"'}).status_code == 200


@pytest.mark.parametrize("name", ["none.js", "..%2fpages.py", "%2e%2e", "README", "main.js%00"])
def test_what_is_no_file_of_the_page_is_not_served(served, name):
    assert served[0].get(f"/assets/{name}").status_code == 404


def test_the_policy_allows_nothing_inline_and_no_other_host():
    allowed = dict(each.strip().split(" ", 1) for each in POLICY.split(";"))
    assert allowed.pop("default-src") == "'none'"
    assert {value for name, value in allowed.items() if name != "img-src"} == {"'self'", "'none'"}


@pytest.mark.parametrize("name", NAMES)
def test_no_file_names_another_host_or_makes_html_of_text(name):
    text = (DIRECTORY / name).read_text()
    assert not re.search(r"https?://(?!www\.w3\.org/2000/svg)", text)
    assert not re.search(r"innerHTML|outerHTML|insertAdjacent|document\.write|\beval\(|new Function", text)
    assert not re.search(r"<(script|style)[^>]*>[^<]|\sstyle=|\son[a-z]+=\"", text)


def test_every_module_that_is_imported_is_there():
    for path in DIRECTORY.glob("*.js"):
        assert set(re.findall(r'from "\./([^"]+)"', path.read_text())) <= set(NAMES)
