"""A fixture folder, read into what a state folder is seeded with. The format is in parameters/clusters/README.md."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import msgspec
import yaml

from gpurunbook.embedded.faults import Fault
from gpurunbook.embedded.generate import Generate
from gpurunbook.embedded.patches import merge
from gpurunbook.embedded.status import Obj

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class FixtureError(ValueError):
    """A fixture that cannot be used; the message names file and field."""


class Expiry(msgspec.Struct, forbid_unknown_fields=True):
    """When a token stops working."""

    after_requests: int | None = None
    after_seconds: float | None = None


class UserSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A user of the cluster. `name` is the kubeconfig's; without a token a random one is made per state folder."""

    name: str
    username: str = ""
    groups: list[str] = []
    token: str = ""
    expires: Expiry = msgspec.field(default_factory=Expiry)


class ActorSpec(msgspec.Struct, forbid_unknown_fields=True):
    """An actor that runs beside the server, as the given user or one of its own."""

    name: str
    parameters: dict[str, Any] = {}
    username: str = ""


class PatchSpec(msgspec.Struct, forbid_unknown_fields=True):
    """A merge patch of one seeded object; target is Kind/name or Kind/namespace/name."""

    target: str
    merge: dict[str, Any]


class Config(msgspec.Struct, forbid_unknown_fields=True):
    """cluster.yaml."""

    name: str = ""
    version: str = "v1.35.3+rke2r3"
    uid: str = ""
    poses_as: Literal["", "live"] = ""
    base: str = ""
    objects: list[str] = []
    remove: list[str] = []
    patches: list[PatchSpec] = []
    generate: Generate | None = None
    users: list[UserSpec] = []
    faults: list[Fault] = []
    actors: list[ActorSpec] = []
    self_subject_review: list[str] = msgspec.field(default_factory=lambda: ["v1"])
    created: str = "2026-08-20T07:59:50Z"
    history: int = 20000
    logs: dict[str, str] = {}


class Seed(msgspec.Struct):
    """A fixture read: the objects of its files, and the configuration with what is left for generated objects."""

    config: Config
    objects: list[dict[str, Any]]


def reference(obj: Obj) -> str:
    """Kind/name or Kind/namespace/name."""
    meta = obj["metadata"]
    return "/".join(part for part in (obj["kind"], meta.get("namespace", ""), meta["name"]) if part)


def _documents(path: Path) -> Iterator[Any]:
    text = path.read_bytes()
    if path.suffix == ".json":
        return iter([msgspec.json.decode(text)])
    return iter(yaml.load_all(text, Loader=_LOADER))  # the C loader takes a fifth of the time, where it is there


def _objects(path: Path) -> Iterator[Obj]:
    try:
        for document in _documents(path):
            if document is None:
                continue
            listed = str(document["kind"]).endswith("List") and "items" in document
            for obj in document["items"] if listed else [document]:
                if listed and "kind" not in obj:  # as the API server writes typed lists
                    obj = {"apiVersion": document["apiVersion"], "kind": document["kind"].removesuffix("List"), **obj}
                reference(obj), obj["apiVersion"]
                yield obj
    except (OSError, yaml.YAMLError, msgspec.DecodeError) as error:
        raise FixtureError(f"{path}: {error}") from error
    except (KeyError, TypeError) as error:
        raise FixtureError(f"{path}: an object without kind, apiVersion or metadata.name ({error})") from error


def _files(place: Path) -> list[Path]:
    if not place.exists():
        raise FixtureError(f"{place}: no such file or folder")
    if place.is_file():
        return [place]
    found = sorted(path for path in place.rglob("*") if path.suffix in (".yaml", ".yml", ".json"))
    return [path for path in found if path.name != "cluster.yaml"]


def load(folder: Path) -> Seed:
    """Read a fixture folder. Writes nothing. Raises FixtureError."""
    file = folder / "cluster.yaml"
    try:
        raw = next(_documents(file), None) or {}
        own = msgspec.convert(raw, Config)
    except (OSError, yaml.YAMLError, msgspec.ValidationError) as error:
        raise FixtureError(f"{file}: {error}") from error
    objects: dict[str, Obj] = {}
    config = msgspec.structs.replace(own)
    if own.base:
        below = load((folder / own.base).resolve())
        objects = {reference(obj): obj for obj in below.objects}
        inherited = {name: value for name, value in msgspec.to_builtins(below.config).items() if name not in raw}
        config = msgspec.convert({**raw, **inherited, "base": ""}, Config)
        config.remove, config.patches = below.config.remove, below.config.patches
    else:
        config.remove, config.patches = [], []
    for path in [*_files(folder), *(p for place in own.objects for p in _files(folder / place))]:
        objects.update((reference(obj), obj) for obj in _objects(path))
    config.name = config.name or folder.name
    # what no file holds must be among the generated objects: it is left to the seeding
    config.remove = config.remove + [gone for gone in own.remove if objects.pop(gone, None) is None]
    for patch in own.patches:
        if patch.target in objects:
            objects[patch.target] = merge(objects[patch.target], patch.merge)
        else:
            config.patches = [*config.patches, patch]
    return Seed(config, list(objects.values()))


def uid(cluster: str, kind: str, namespace: str, name: str) -> str:
    """A stable uid. Only that of kube-system differs from cluster to cluster: it is the cluster's identity."""
    text = f"{kind}/{namespace}/{name}" + (f"@{cluster}" if (kind, name) == ("Namespace", "kube-system") else "")
    digest = hashlib.sha256(text.encode()).hexdigest()
    return f"{digest[:8]}-{digest[8:12]}-4{digest[13:16]}-8{digest[17:20]}-{digest[20:32]}"
