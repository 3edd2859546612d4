"""Which values a file with SOPS metadata may have in plain, by the rule in the metadata.

Covered: every rule, no rule, several, rules that nobody can judge, values that a rule leaves open, a kind that is
encrypted. Not covered: whether what is encrypted can be decrypted, and whether the checksum is right.
"""

from __future__ import annotations

import textwrap
import time

import pytest

from gpurunbook.supply.manifests import review

ENC = "ENC[AES256_GCM,data:eA==,iv:aXY=,tag:dGFn,type:str]"


def sops(rule: str = "") -> str:
    return f"sops: {{mac: '{ENC}', lastmodified: '2026-08-01T00:00:00Z', age: [{{recipient: age1x, enc: x}}]{rule}}}\n"


def said(text: str) -> list[str]:
    return [found.finding.code for found in review([("a.yaml", text.encode())]).found]


HEAD = "apiVersion: v1\nkind: Thing\nmetadata: {name: x, labels: {app: b}}\n"
PLAIN = "sops-not-encrypted"


@pytest.mark.parametrize(
    ("body", "rule", "codes"),
    [
        (f"spec: {{a: '{ENC}', image: 'r.example/a:v1'}}", "encrypted_regex: ^a$", []),
        (f"spec: {{a: '{ENC}', image: 'r.example/a:latest'}}", "encrypted_regex: ^a$", ["explicit-latest"]),
        (f"spec: {{a: x, b: '{ENC}'}}", "encrypted_regex: ^(a|b)$", [PLAIN]),
        (f"spec: {{a: {{c: x}}, b: '{ENC}'}}", "encrypted_regex: ^(a|b)$", [PLAIN]),
        (f"spec: {{a: [x], b: '{ENC}'}}", "encrypted_regex: ^(a|b)$", [PLAIN]),
        (f"spec: {{a: '', c: ~, b: '{ENC}'}}", "encrypted_regex: ^(a|b|c)$", []),
        (f"spec: {{credentials: x, b: '{ENC}'}}", "encrypted_regex: cred|^b$", [PLAIN]),
        (f"spec: {{CREDENTIALS: x, b: '{ENC}'}}", "encrypted_regex: (?i)cred|^b$", [PLAIN]),
        (f"spec: {{b: '{ENC}'}}", "encrypted_regex: data|^b$", [PLAIN]),  # metadata has data in it
        (f"spec: {{b: '{ENC}'}}", "unencrypted_regex: ^(apiVersion|kind|metadata)$", []),
        (f"spec: {{a: x, b: '{ENC}'}}", "unencrypted_regex: ^(apiVersion|kind|metadata)$", [PLAIN]),
        (f"spec: {{a_enc: x, b_enc: '{ENC}', c: y}}", "encrypted_suffix: _enc", [PLAIN]),
        (f"spec: {{b_enc: '{ENC}', c: y}}", "encrypted_suffix: _enc", []),
        (f"spec: {{map_enc: {{a: x}}, b_enc: '{ENC}'}}", "encrypted_suffix: _enc", [PLAIN]),
        (f"spec: {{b: '{ENC}'}}", "encrypted_regex: ^b$, mac_only_encrypted: true", []),
        (f"spec: {{b: '{ENC}', password: hunter2}}", "encrypted_regex: ^b$", ["secret-value"]),
        (f"spec: {{b: '{ENC}', password_open: hunter2}}", "unencrypted_suffix: _open", [PLAIN, "secret-value"]),
        (f"spec: {{b: '{ENC}', a: hunter2}}", "encrypted_regex: ^b$, encrypted_suffix: b", [PLAIN]),
        (f"spec: {{b: '{ENC}', a: x}}", "'encrypted_regex': '(a+)+$'", [PLAIN]),
        (f"spec: {{b: '{ENC}', a: x}}", "'encrypted_regex': '^b(?=x)'", [PLAIN]),
        (f"spec: {{b: '{ENC}', a: x}}", "'encrypted_regex': '['", [PLAIN]),
        (f"spec: {{b: '{ENC}', a: x}}", "'encrypted_regex': '[[:alpha:]]'", [PLAIN]),
        (f"spec: {{b: '{ENC}', a: x}}", "'encrypted_regex': '^.*bb.*$'", []),
        (f"spec: {{b: '{ENC}', a: x}}", "'encrypted_regex': '^.*pp.*$'", [PLAIN]),
    ],
)  # fmt: skip
def test_a_value_is_plain_only_where_the_rule_leaves_it_open(body: str, rule: str, codes: list[str]) -> None:
    assert said(f"{HEAD}{body}\n{sops(', ' + rule)}") == codes


def test_without_a_rule_only_the_customary_suffix_leaves_a_value_open() -> None:
    whole = f"a: '{ENC}'\nb_unencrypted: x\nc_unencrypted: {{d: x}}\n"
    assert said(whole + sops()) == []
    assert said(whole + "c: x\n" + sops()) == [PLAIN]
    assert said(whole + "api_token_unencrypted: x\n" + sops()) == ["secret-value"]
    assert said(whole + "b_enc: x\n" + sops(", unencrypted_suffix: _enc")) == [PLAIN]


@pytest.mark.parametrize(
    "rule", ["encrypted_regex: ^(a)$", "unencrypted_regex: ^open$", "encrypted_suffix: a", "unencrypted_suffix: open"]
)
@pytest.mark.parametrize("part", ["data", "stringData"])
def test_a_value_of_a_secret_is_never_open(rule: str, part: str) -> None:
    rest = "kind: Secret\n" if not rule.startswith("un") else f"kind: '{ENC}'\n"
    good = f"{rest}{part}: {{a: '{ENC}'}}\n{sops(', ' + rule)}"
    assert said(good) == []
    assert said(good.replace(f"{{a: '{ENC}'}}", f"{{a: '{ENC}', open: eA==}}")) == [PLAIN]


def test_what_is_open_beside_an_encrypted_kind_is_judged() -> None:
    text = f"kind: '{ENC}'\nspec: {{containers: [{{image: 'r.example/a:latest'}}]}}\n"
    assert said(text + sops(", unencrypted_regex: ^spec$")) == ["explicit-latest"]


@pytest.mark.parametrize(
    "place", ["spec: {containers: [{image: 'ENC'}]}", "spec: {image: {repository: a, tag: 'ENC'}}"]
)
def test_what_must_be_reviewed_may_not_be_encrypted(place: str) -> None:
    text = f"kind: '{ENC}'\n{place.replace('ENC', ENC)}\n{sops(', unencrypted_regex: ^repository$')}"
    assert said(text) == ["encrypted-setting"]


def test_a_hostile_rule_ends() -> None:
    began = time.process_time()
    for rule in ("(x+x+)+y", "(x|x)*y", ".*.*.*.*.*y", "(?:x?){40}x{40}", "x*x*y"):
        said(f"{'x' * 250}: '{ENC}'\n{sops(f', encrypted_regex: {rule!r}')}")
    assert time.process_time() - began < 10


@pytest.mark.parametrize("kind", ["List", "SecretList"])
def test_a_list_is_encrypted_as_a_whole(kind: str) -> None:
    good = f"kind: {kind}\nitems: [{{kind: Secret, data: {{a: '{ENC}'}}}}]\n{sops(', encrypted_regex: ^data$')}"
    assert said(good) == []
    assert sorted(said(good.replace("a: '", "b: eA==, a: '"))) == ["secret-value", PLAIN]
    assert said(good.split("sops:")[0]) == ["secret-value"]


def test_a_secret_in_an_encrypted_document_is_encrypted_too() -> None:
    inner = f"{{apiVersion: v1, kind: Secret, metadata: {{name: s}}, data: {{a: '{ENC}'}}}}"
    good = f"extraObjects: [{inner}]\n{sops(', encrypted_regex: ^data$')}"
    assert said(good) == []
    assert said(good.replace(", data: {", ", stringData: {b: x}, data: {")) == ["secret-value"]


COMMENTED = f"""\
apiVersion: v1
kind: Thing
metadata: {{name: x}}
spec:
  # public: of no use to others
  a: x
  b: '{ENC}'
  # public
  c:
    d: x
    e: [x, y]
  # secret: of ours
  f:
    g: '{ENC}'
    h:
    - '{ENC}'
  i: x  # public
  j:
    # public
    - x
    - y: '{ENC}'
      z: '{ENC}'
"""
META = "# public\napiVersion: v1\n# public\nkind: Thing\n# public\nmetadata: {name: x}\n"


@pytest.mark.parametrize(
    ("old", "new", "opened", "closed"),
    [
        ("", "", [], []),
        ("  # public: of no use to others\n", "", [PLAIN], []),
        ("  # public\n  c:", "  c:", [PLAIN], []),
        ("    # public\n", "", [PLAIN], []),
        ("  i: x  # public", "  i: x", [PLAIN], []),
        (f"    g: '{ENC}'", "    g: x", [PLAIN], [PLAIN]),
        (f"    - '{ENC}'", "    - x", [PLAIN], [PLAIN]),
        (f"    - '{ENC}'", f"    - '{ENC}'\n    # note\n    k: x", [PLAIN], [PLAIN]),
        (f"  b: '{ENC}'", "  b: x", [PLAIN], []),
        (f"      z: '{ENC}'", "      z: x", [PLAIN], []),
        ("  # public: of no use to others\n", "  # public: of no use to others\n\n  # and more\n", [], []),
    ],
)
def test_a_rule_over_comments_is_followed(old: str, new: str, opened: list[str], closed: list[str]) -> None:
    text = COMMENTED.replace(old, new)
    bare = text.split("spec:")[1]
    assert said(META + "spec:" + bare + sops(", unencrypted_comment_regex: ^ public")) == opened
    assert said(text + sops(", encrypted_comment_regex: secret")) == closed


def test_comments_that_are_not_there_decide_nothing() -> None:
    inner = textwrap.indent(COMMENTED + sops(", encrypted_comment_regex: secret"), "    ")
    text = f"apiVersion: v1\nkind: ConfigMap\nmetadata: {{name: c}}\ndata:\n  a.yaml: |\n{inner}"
    assert said(text) == [PLAIN]
