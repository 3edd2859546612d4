"""Image references: the grammar, Docker Hub's names, and the classes of the policy, over generated references.

Covered: every valid reference is taken apart into the parts that it was made of; one flaw anywhere makes it invalid;
long forms are stable; any text at all gets exactly one class; long hostile text is read quickly.
Not covered: the table of classes by example (tests/cases/audit/test_audit_words.py).
"""

from __future__ import annotations

import re

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from gpurunbook.errors import InputError
from gpurunbook.supply.references import FLOATING_TAGS, desired, is_digest, parse


def joined(host: str, path: str, tag: str, digest: str) -> str:
    return (f"{host}/" if host else "") + path + (f":{tag}" if tag else "") + (f"@{digest}" if digest else "")


def is_host(component: str) -> bool:
    return "." in component or ":" in component or component == "localhost"


LABEL = st.from_regex(r"[A-Za-z0-9]([A-Za-z0-9-]{0,4}[A-Za-z0-9])?", fullmatch=True)
PORT = st.integers(0, 65535).map(lambda n: f":{n}")
HOST = st.one_of(
    st.builds(
        lambda labels, port: ".".join(labels) + port, st.lists(LABEL, min_size=2, max_size=3), PORT | st.just("")
    ),
    st.builds(lambda label, port: label + port, LABEL, PORT),
    st.sampled_from(["localhost", "localhost:5000", "[::1]", "[fe80::1]:5000"]),
)
COMPONENT = st.from_regex(r"[a-z0-9]{1,5}((\.|_|__|-{1,3})[a-z0-9]{1,5}){0,2}", fullmatch=True)
PATH = st.lists(COMPONENT, min_size=1, max_size=3).map("/".join)
TAG = st.from_regex(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,20}", fullmatch=True)
DIGEST = st.from_regex(r"sha256:[0-9a-f]{64}", fullmatch=True)
BARE = PATH.filter(lambda path: "/" not in path or not is_host(path.split("/")[0]))
PLACE = st.tuples(HOST, PATH) | st.tuples(st.just(""), BARE)
CLASSES = {
    "empty": ("empty-reference",),
    "invalid": ("invalid-reference",),
    "bad-digest": ("bad-digest",),
    "implicit-latest": ("implicit-latest",),
    "floating-alias": ("floating-alias",),
    "tag": (),
    "digest": (),
    "tag+digest": (),
}


@given(HOST, PATH, TAG | st.just(""), DIGEST | st.just(""))
def test_a_reference_with_a_registry_is_taken_apart(host: str, path: str, tag: str, digest: str) -> None:
    assume(host.lower() not in ("docker.io", "index.docker.io"))
    read = parse(joined(host, path, tag, digest))
    assert (read.registry, read.repository) == (host.lower(), f"{host.lower()}/{path}")
    assert (read.tag, read.digest, read.pinned) == (tag, digest, bool(digest))
    assert read.name == path.split("/")[-1]


@given(BARE, TAG | st.just(""), DIGEST | st.just(""))
def test_without_a_registry_it_is_docker_hub(path: str, tag: str, digest: str) -> None:
    read = parse(joined("", path, tag, digest))
    assert read.repository == "docker.io/" + (path if "/" in path else f"library/{path}")
    for spelled in ("docker.io", "index.docker.io", "Docker.IO"):
        assert parse(joined(spelled, path, tag, digest)).identity == read.identity


@given(PLACE, TAG | st.just(""), DIGEST | st.just(""))
def test_the_long_form_reads_as_itself(place: tuple[str, str], tag: str, digest: str) -> None:
    read = parse(joined(*place, tag, digest))
    again = parse(read.identity)
    assert (again.repository, again.identity) == (read.repository, read.identity)
    assert again.tag == (tag or ("" if digest else "latest"))


@given(PLACE, TAG | st.just(""), DIGEST | st.just(""))
def test_the_class_follows_from_the_parts(place: tuple[str, str], tag: str, digest: str) -> None:
    read = desired(joined(*place, tag, digest))
    floating = tag.lower() in FLOATING_TAGS or "latest" in re.split("[-_.]", tag.lower())
    if tag == "latest":
        expected = "explicit-latest"
    elif digest:
        expected = "tag+digest" if tag else "digest"
    else:
        expected = "implicit-latest" if not tag else "floating-alias" if floating else "tag"
    assert read.word == expected
    assert read.pin == digest
    assert bool(read.codes) is (expected not in ("tag", "digest", "tag+digest"))


FLAWS = [" ", "\n", "\t", "\u00a0", "+", "%", "!", "//", "é", "\x00", "@@", "\u0661"]


@given(PLACE, TAG, st.sampled_from(FLAWS), st.data())
def test_one_flaw_anywhere_before_the_digest_makes_it_invalid(
    place: tuple[str, str], tag: str, flaw: str, data: st.DataObject
) -> None:
    head = joined(*place, "", "")
    at = data.draw(st.integers(0, len(head)))
    text = head[:at] + flaw + head[at:] + f":{tag}"
    with pytest.raises(InputError) as wrong:
        parse(text)
    assert wrong.value.code == "invalid-reference"
    assert desired(text).word == "invalid"


@given(st.text() | st.text(alphabet="aA1.:/@-_ \n[]", max_size=30))
@example("@")
@example(":")
@example("/")
@example("a:b:c")
@example("a/b:c/d:e")
def test_any_text_has_one_class_and_the_codes_of_that_class(text: str) -> None:
    read = desired(text)
    if read.word == "explicit-latest":
        assert read.codes in (("explicit-latest",), ("bad-digest", "explicit-latest"))
    else:
        assert read.codes == CLASSES[read.word]
    assert (read.reference is None) is (read.word in ("empty", "invalid"))


@given(st.text(max_size=80))
@example("sha256:" + "a" * 64 + "\n")
@example("sha256:" + "\u0661" * 64)
@example("SHA256:" + "a" * 64)
def test_only_sha256_and_64_lower_case_hex_digits_are_a_digest(text: str) -> None:
    algorithm, _, value = text.partition(":")
    assert is_digest(text) is (algorithm == "sha256" and len(value) == 64 and set(value) <= set("0123456789abcdef"))


@pytest.mark.parametrize("text", ["a" * 255, "a/" * 127 + "b"], ids=["one component", "many"])
def test_a_path_of_255_characters_is_the_longest(text: str) -> None:
    assert len(parse(f"registry.example/{text}").repository) == len("registry.example/") + 255
    with pytest.raises(InputError):
        parse(f"registry.example/{text}a")


@pytest.mark.parametrize("piece", ["a", "a-", "a.", "a/", "_", "a:", "[", "a.b/"])
def test_very_long_text_is_refused_with_a_short_message(piece: str) -> None:
    with pytest.raises(InputError) as wrong:
        parse(piece * 500_000)
    assert len(str(wrong.value)) < 1000
