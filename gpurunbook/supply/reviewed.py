"""The manifest review of a promotion, and the tuple wherever it stands: in Git, in what is rendered, in the cluster.

Source: GPU supply-chain policy, Released pilot tuple; promotion steps 2 and 3.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any

from gpurunbook.digests import digest
from gpurunbook.errors import InputError
from gpurunbook.findings import Finding, Status
from gpurunbook.plan import Check, Folder, Judgement, Need, Observed, Problem, Recorded, Seen
from gpurunbook.supply import live, places, sightings, strictyaml
from gpurunbook.supply.beside import few, is_reviewed
from gpurunbook.supply.current import WORKLOAD
from gpurunbook.supply.found import CHECK, SOURCE
from gpurunbook.supply.manifests import LIMIT, Review, Reviewed, review
from gpurunbook.supply.members import at
from gpurunbook.supply.packed import opened
from gpurunbook.supply.promotion import as_file
from gpurunbook.supply.secrets import SECRET_CODES
from gpurunbook.supply.sightings import Sighting
from gpurunbook.supply.tuple import Tuple


def manifests_kept(
    declared: Sequence[str], rendered: Sequence[str], namespaces: Sequence[str], nodes: Sequence[str]
) -> Check:
    """Writes nothing. Reviews folders of manifests, and compares the tuple there and live with the proposed one.

    declared: folders of what stands in Git (Helm values, Flux, Fleet); rendered: of what would be applied; nodes: those
    of the canary, none for all: in the middle of a promotion the others still run the released tuple. Keeps
    `manifests.json` with every image that is rendered, and the digest of every file that was reviewed.
    """
    folders = [("declared", path) for path in declared] + [("rendered", path) for path in rendered]
    needs: dict[str, Need] = {f"{word} {path}": Folder(path, withhold=withheld) for word, path in folders}

    def judge(seen: Seen) -> Judgement:
        files = {word: list(_files(word, seen)) for word in ("declared", "rendered")}
        answer = _review(seen, [*files["declared"], *files["rendered"]])
        deep = answer.verdict != "error"  # a text that unpacks without end was refused, and is not opened again
        objects = {word: list(_documents(given, deep=deep)) for word, given in files.items()}
        stands: dict[str, Sequence[Sighting]] = {
            "declared": sightings.declared(objects["declared"]),
            "rendered": sightings.rendered(objects["rendered"]),
        }
        images = sorted(set(_images(objects["rendered"])))
        table = _places(seen, namespaces, nodes, stands)
        given = {"declared": declared, "rendered": rendered}
        findings = [_unknown("not-given", word, "no folder was given") for word, paths in given.items() if not paths]
        findings += [*_flaws(answer), *table.findings]
        facts = {**table.facts, "files": answer.files, "documents": answer.documents, "images": len(images)}
        facts["passed_over"] = len(answer.passed_over)
        kept = {"images": images, "files": _digests(seen, folders)}
        return Judgement(tuple(findings), table.views, facts, {"manifests.json": as_file(kept)})

    return Check("Manifest review, and the tuple wherever it stands", {**needs, **_needs(namespaces)}, judge)


def _digests(seen: Seen, folders: Iterable[tuple[str, str]]) -> dict[str, dict[str, str]]:
    """Declared and rendered → path in its folder → digest; where folders of one kind have the same path, all count."""
    found: dict[str, dict[str, str]] = {"declared": {}, "rendered": {}}
    for number, (word, path) in enumerate(folders):
        for name, data in sorted((seen[f"{word} {path}"].value or {}).items()):
            if isinstance(data, bytes):
                found[word][f"{number}/{name}"] = digest(data)
    return found


def withheld(name: str, data: bytes) -> str:
    """Writes nothing. Why no copy of a file may stand in the evidence: a secret is in it, or nobody can tell; else "".

    The redactor cannot help here: a password has no shape.
    """
    if not is_reviewed(name):
        return "no manifest: it was not judged"
    codes = {one.finding.code: one.finding.status for one in review([(name, data)]).found}
    if secret := sorted(SECRET_CODES & codes.keys()):
        return f"a secret is in it: {', '.join(secret)}"
    return "it could not be read, so nobody can tell what is in it" if Status.UNKNOWN in codes.values() else ""


def still_live(namespaces: Sequence[str], nodes: Sequence[str]) -> Check:
    """Writes nothing. Whether the cluster still runs the proposed tuple; of the nodes, none for all."""

    def judge(seen: Seen) -> Judgement:
        return _places(seen, namespaces, nodes, {})

    return Check("The tuple in the cluster", _needs(namespaces), judge)


def _needs(namespaces: Sequence[str]) -> dict[str, Need]:
    return {"tuple": Recorded("tuple", "tuple.json"), **live.needs(namespaces)}


def _places(
    seen: Seen, namespaces: Sequence[str], nodes: Sequence[str], stands: Mapping[str, Sequence[Sighting]]
) -> Judgement:
    if (missing := seen["tuple"].problem) is not None:
        return Judgement((_unknown("tuple-unreadable", "tuple", missing.message),))
    tuples = json.loads(seen["tuple"].value)
    objects, unread = live.objects(seen, namespaces)
    wrong = [_unknown("live-unreadable", name, message) for name, message in unread.items()]
    known = {at(raw, "metadata", "name") for raw in objects if raw["kind"] == "Node"}
    wrong += [_unknown("node-unknown", node, "the cluster has no such node") for node in nodes if node not in known]
    if wrong:
        return Judgement(tuple(wrong))
    released, proposed = (Tuple(state, tuples[state]) for state in ("released", "proposed"))
    everywhere = {**stands, "live": sightings.live(objects)}
    made = places.compare(released, proposed, everywhere, nodes or None)
    more = [*_bare(objects, everywhere["live"], nodes), *places.neither(released, proposed, everywhere["live"], nodes)]
    return replace(made, findings=(*more, *made.findings))


def _bare(objects: Sequence[Mapping[str, Any]], seen: Sequence[Sighting], nodes: Sequence[str]) -> Iterator[Finding]:
    """Nodes that must run the tuple, and of which nothing shows that they have a GPU, or a driver: it may be down."""
    gpu = {str(at(raw, "metadata", "name")): raw for raw in objects if raw["kind"] == "Node" and sightings.has_gpu(raw)}
    shown = {one.node for one in seen if one.field == "driver" and one.state != "unresolved"}
    for name in sorted(nodes or gpu):
        if name not in gpu:
            yield _unknown("live-unknown", f"Node/{name}", "no label says that it has a GPU")
        elif name not in shown and not str(at(gpu[name], "metadata", "labels", WORKLOAD) or "").startswith("vm-"):
            yield _unknown("live-unknown", f"Node/{name}", "neither a label nor a pod shows a driver on it")


def _unknown(code: str, subject: str, message: str) -> Finding:
    remedy = "What is not read is not as proposed; put it right."
    return Finding(places.CHECK, subject, Status.UNKNOWN, code, message, remedy, places.SOURCE)


def _files(word: str, seen: Seen, *, others: bool = False) -> Iterator[tuple[str, bytes]]:
    """The manifests of the folders, or the files of other kinds."""
    for observed in seen.values():
        need = observed.need
        if isinstance(need, Folder) and observed.problem is None and seen.get(f"{word} {need.path}") is observed:
            for name, data in sorted(observed.value.items()):
                if is_reviewed(name) != others and isinstance(data, bytes):
                    yield f"{need.path.rstrip('/')}/{name}", data


def _review(seen: Seen, files: Iterable[tuple[str, bytes]]) -> Reviewed:
    made = Review()
    for path, message in _refused(seen.values()):
        made.refuse(path, InputError(message, code="unreadable"))
    for path, data in files:
        made.add(path, data)
    for word in ("declared", "rendered"):
        for path, data in _files(word, seen, others=True):
            made.pass_over(path, data)
    return made.finish()


def _refused(every: Iterable[Observed]) -> Iterator[tuple[str, str]]:
    """Folders and files that could not be read: none is passed over."""
    for observed in every:
        need = observed.need
        if not isinstance(need, Folder):
            continue
        if observed.problem is not None:
            yield need.path, observed.problem.message
            continue
        manifests = [name for name in observed.value if is_reviewed(name)]
        if not manifests:
            yield need.path, "no .yaml, .yml or .json in it, and no Kustomization"
        for name, problem in sorted(observed.value.items()):
            if isinstance(problem, Problem):  # of any name: it may be a folder, or a link to one
                yield f"{need.path}/{name}", problem.message


def _flaws(answer: Reviewed) -> Iterator[Finding]:
    for one in answer.found:
        f = one.finding
        place = f"{one.file}:{one.line}" + (f" {f.subject}" if f.subject != one.file else "")
        yield Finding(f.check, place, f.status, f.code, f.message, f.remedy, f.source)
    if answer.verdict == "pass":
        message = f"{answer.documents} documents of {answer.files} files keep to the policy"
        if answer.passed_over:
            message += f"; of another kind, and not judged: {few(list(answer.passed_over))}"
        yield Finding(CHECK, "manifests", Status.PASS, "manifests-kept", message, "", SOURCE)


def _documents(files: Iterable[tuple[str, bytes]], *, deep: bool) -> Iterator[dict[str, Any]]:
    """Every object, also those in texts (deep), its scalars as text; what cannot be read is told by the review."""
    for _, data in files:
        try:
            for node in strictyaml.documents(data, limit=LIMIT):
                for one in (node, *(opened(node, LIMIT) if deep else ())):
                    yield from _objects(strictyaml.plain(one))
        except InputError:
            continue


def _objects(raw: Any) -> Iterator[dict[str, Any]]:
    if not isinstance(raw, dict):
        return
    if str(raw.get("kind") or "").endswith("List") and isinstance(raw.get("items"), list):
        for item in raw["items"]:
            yield from _objects(item)
    else:
        yield raw


def _images(raw: Any) -> Iterator[str]:
    """Images of pod specs at any depth."""
    if isinstance(raw, dict):
        for name in ("containers", "initContainers", "ephemeralContainers"):
            listed = raw.get(name)
            for item in listed if isinstance(listed, list) else ():
                if image := at(item, "image"):
                    yield str(image)
        volumes = raw.get("volumes")
        for item in volumes if isinstance(volumes, list) else ():
            if reference := at(item, "image", "reference"):
                yield str(reference)
        for value in raw.values():
            yield from _images(value)
    elif isinstance(raw, list | Iterator):
        for item in raw:
            yield from _images(item)
