"""Image references in manifests and Helm values, wherever they stand, judged by the reference policy.

Pod specs at any depth, image volumes, the repository/image/version triples of custom resources, the
registry/repository/tag maps of Helm values, environment variables of operators, kustomize's image overrides.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from functools import cached_property

from gpurunbook.supply import mentions, parameters, references
from gpurunbook.supply.flaws import Flaw, not_final
from gpurunbook.supply.strictyaml import List, Map, Node, Text
from gpurunbook.supply.tree import Trail, dotted, word

CONTAINERS = frozenset({"containers", "initContainers", "ephemeralContainers"})
_KEYS = frozenset({"image", "repository", "tag", "imageTag", "newTag", "newName", "reference", "value", "url"})
_NAMED = re.compile(r"[a-z][A-Za-z0-9]*Image|imageNew")
"""Keys that hold a reference in charts and custom resources."""
_ENDINGS = ("Image", "imageNew")

NVIDIA_KINDS = frozenset({"ClusterPolicy", "NVIDIADriver", "NicClusterPolicy", "GPUCluster", "GPUClusterConfig"})

OPERANDS = frozenset(
    {
        "operator",
        "validator",
        "driver",
        "manager",
        "driverManager",
        "toolkit",
        "devicePlugin",
        "dcgm",
        "dcgmExporter",
        "gfd",
    }
    | {"migManager", "nodeStatusExporter", "gds", "gdrcopy", "vfioManager", "vgpuManager", "vgpuDeviceManager"}
    | {"sandboxDevicePlugin", "kataSandboxDevicePlugin", "kataManager", "ccManager", "k8sDriverManager", "draDriver"}
)
"""Operands of the GPU Operator: in its values and in ClusterPolicy, `version` under one of these is an image's tag."""

WORKLOADS = frozenset(
    {"Pod", "Deployment", "DaemonSet", "StatefulSet", "ReplicaSet", "ReplicationController", "Job", "CronJob"}
)
_ENVIRONMENT = re.compile(r"(?:[A-Z0-9_-]*[_-])?(?:IMAGE|IMG)|RELATED_IMAGE_[A-Za-z0-9_]+")
_ARGUMENT = re.compile(r"--?[A-Za-z0-9-]*image=(\S+)")
_OPTION = re.compile(r"--?[A-Za-z0-9-]*image")
_EXPANDED = re.compile(r"\$\([A-Za-z_][A-Za-z0-9_.-]*\)")
"""What the kubelet puts in from the container's environment, which is judged there."""
_KYVERNO = "kyverno.io/"
_PATTERN = re.compile(r"[*?!|&<>]|\{\{")
"""In a policy of Kyverno's: what images of others must be like, and no image itself."""

_APART = frozenset({"registry", "repository", "tag", "version"})
"""Beside one of these a reference is a part of one."""

_DATA_VOLUME = "docker://"
_NOT_MANIFESTS = frozenset({"data", "stringData", "binaryData", "labels", "annotations", "matchLabels", "properties"})
_NOT_MANIFESTS |= {"rbd"}
"""Under these keys `image` is a word like any other; that of `rbd` is a block device of Ceph."""


def concern(key: str) -> bool:
    """Writes nothing. Whether a reference can stand under such a key, or beside it."""
    return key in _KEYS or _NAMED.fullmatch(key) is not None or mentions.is_tag(key)


class Images:
    """Judges one document. kind and name are those of its object, "" for values; values: it is Helm values."""

    def __init__(self, doc: Map, kind: str, name: str, *, values: bool) -> None:
        self._doc = doc
        self._kind = kind
        self._canary = "canary" in name.lower()
        self._patterns = word(doc, "apiVersion").startswith(_KYVERNO)
        self._values = values
        self._followed: set[tuple[str, bool]] = set()

    @cached_property
    def _parameters(self) -> dict[str, list[Text]]:
        return parameters.given(self._doc)

    def operand(self, trail: Trail) -> bool:
        """Writes nothing. Whether a reference can stand in a mapping because of where it is."""
        if trail is None:
            return False
        outer, key = trail
        return key in OPERANDS or key == "artifacts" or (outer is not None and outer[1] in CONTAINERS)

    def judge(self, node: Map, trail: Trail) -> Iterator[Flaw]:
        """Writes nothing. What is against the references that stand in this mapping itself."""
        parts = node.items
        key = trail[1] if trail else ""
        if isinstance(key, int) and trail and trail[0] and trail[0][1] in CONTAINERS:
            yield from self._container(node, trail)
            return
        image = parts.get("image")
        if isinstance(image, Text):
            yield from self._named(node, Text("", False, image.line) if image.null else image, trail)
        elif isinstance(parts.get("repository"), Text) or "tag" in parts or "imageTag" in parts:
            yield from self._mapped(node, trail)
        elif key in OPERANDS and (self._values or self._kind in NVIDIA_KINDS):
            yield from self._tag(_first(node, "version"), dotted(trail, "version"))
        if "url" in parts:
            yield from self._addressed(node, trail)
        if "reference" in parts and key == "image" and not {"tag", "digest"} & parts.keys():  # of an image volume
            yield from self._judge(parts["reference"], dotted(trail, "reference"))
        if "newTag" in parts or "newName" in parts:
            yield from self._kustomized(node, trail)
        if "value" in parts and (text := word(node, "value")):
            yield from self._valued(parts["value"], text, word(node, "name"), trail, word(node, "path"))
        for name, value in parts.items():
            if (
                name.endswith(_ENDINGS)
                and isinstance(value, Text)
                and _NAMED.fullmatch(name)
                and not value.null
                and not _elsewhere(trail)
            ):
                text = value.text
                if ("/" in text or ":" in text) and "://" not in text and text[0] not in "/.":
                    yield from self._judge(value, dotted(trail, name))
            elif (
                isinstance(value, Text)
                and mentions.is_tag(name)
                and (not _elsewhere(trail) or references.floats(value.text))
            ):
                yield from self._tag(value, dotted(trail, name))

    def _addressed(self, node: Map, trail: Trail) -> Iterator[Flaw]:
        """A reference as an address: of a DataVolume, or bare in the artifacts of a Kata runtime class."""
        url = word(node, "url")
        if url.startswith(_DATA_VOLUME):
            reference = Text(url.removeprefix(_DATA_VOLUME), False, node.items["url"].line)
            yield from self._judge(reference, dotted(trail, "url"))
        elif url and "://" not in url and trail is not None and trail[1] == "artifacts":
            yield from self._judge(node.items["url"], dotted(trail, "url"))

    def _valued(self, value: Node, text: str, name: str, trail: Trail, path: str) -> Iterator[Flaw]:
        """A value beside a name, in an environment say, or beside the path of a JSON patch."""
        if _ENVIRONMENT.fullmatch(name) or mentions.is_image(name, text):
            yield from self._judge(value, dotted(trail, f"value of {name}"))
        elif mentions.is_tag(name) and references.floats(text) and isinstance(value, Text):
            yield from self._tag(value, dotted(trail, f"value of {name}"))
        elif path.endswith("/image"):
            yield from self._judge(value, dotted(trail, f"value of {path}"))
        elif name and (moved := mentions.moved(text)):
            yield from self._judge(Text(moved, False, value.line), dotted(trail, f"value of {name}"))

    def arguments(self, node: List, trail: Trail) -> Iterator[Flaw]:
        """Writes nothing. What is against `--…image=REFERENCE` or `--…image REFERENCE`, and any tag that is moved."""
        before = ""
        for n, item in enumerate(node.items):
            text = word(item)
            found = _ARGUMENT.fullmatch(text) if "image=" in text else None
            reference = found[1] if found else text if _OPTION.fullmatch(before) else mentions.moved(text)
            before = text
            if reference and reference[0] != "-" and not _EXPANDED.fullmatch(reference):
                yield from self._judge(Text(reference, False, item.line), f"{dotted(trail)}[{n}]")

    def texts(self, node: Map | List, trail: Trail, taken: Collection[int]) -> Iterator[Flaw]:
        """Writes nothing. What is against references in texts that are no documents. taken: ids of those that are."""
        if self._patterns or self._kind in mentions.SPEAKING:
            return
        elsewhere = _elsewhere(trail)
        noted = trail is not None and trail[1] == "annotations"
        named = trail is not None and trail[1] == "images"  # then each key is a name of theirs
        whole = isinstance(node, Map) and _APART.isdisjoint(node.items)
        for key, value in node.items.items() if isinstance(node, Map) else enumerate(node.items):
            if type(value) is not Text or key in mentions.PROSE or id(value) in taken:
                continue
            text = value.text
            if not mentions.is_word(text):
                if not noted and key != "image" and mentions.concern(text):
                    yield from self.mentioned(value, dotted((trail, key)))
            elif key in _KEYS and not elsewhere:
                continue  # judged with what stands beside it
            elif moved := mentions.moved(text):
                yield from self._judge(Text(moved, False, value.line), dotted((trail, key)))
            elif (
                whole
                and isinstance(key, str)
                and (elsewhere or not concern(key))
                and mentions.is_image("image" if named else key, text)
            ):
                yield from self._judge(value, dotted((trail, key)))

    def mentioned(self, value: Text, field: str) -> Iterator[Flaw]:
        """Writes nothing. What is against the references that a text of another kind mentions, at their lines."""
        every = mentions.mentions(value.text)
        told = ((value.line + (number if value.block else 0), reference) for number, reference in every)
        for line, reference in dict.fromkeys(told):  # of what is quoted, all lines are one
            yield from self._judge(Text(reference, False, line), field)

    def _container(self, node: Map, trail: Trail) -> Iterator[Flaw]:
        image = node.items.get("image")
        field = dotted(trail, "image")
        if image is None or (isinstance(image, Text) and not image.text):
            if self._kind in WORKLOADS:  # elsewhere it may be a patch, or a template that is completed later
                yield from self._judge(Text("", False, node.line), field)
            return
        if not isinstance(image, Map) or self._kind in WORKLOADS:  # values may have it in parts, which are judged then
            yield from self._judge(image, field, pinned=self._canary)
        for name in ("args", "command"):
            given = node.items.get(name)
            if isinstance(given, List):
                yield from self.arguments(given, (trail, name))

    def _named(self, node: Map, image: Text, trail: Trail) -> Iterator[Flaw]:
        """`image: text`, alone or as the middle of a triple."""
        if _elsewhere(trail) or "://" in image.text or self._kind == "ImageRepository":  # Flux's: it lists the tags
            return
        repository, version = word(node, "repository"), _first(node, "version", "tag", "imageTag")
        own = references.desired(image.text).word
        triple = "repository" in node.items or (version is not None and own in {"implicit-latest", "empty"})
        off = self._kind in NVIDIA_KINDS and word(node, "enabled") == "false"
        if off and not (version and version.text):
            return  # the chart writes half a reference for what it does not deploy
        if not triple:
            if image.text:
                version = self._plan() if own == "implicit-latest" else None
                whole = _joined(image.text, version, image.line)
                yield from self._judge(whole, dotted(trail, "image"), pinned=_is_canary(trail))
            return
        if not image.text and not repository and not (version and version.text):
            return  # all empty: the operator's environment names the image
        if self._kind in NVIDIA_KINDS and not repository and not image.text:
            yield from self._tag(version, dotted(trail, "version"))
        elif version is None or not version.text or version.null:
            if not self._values:  # in values the chart's own version is filled in
                yield from self._judge(
                    _joined(f"{repository}/{image.text}".strip("/"), None, image.line), dotted(trail)
                )
        elif flaw := not_final(version, dotted(trail, "version")):
            yield flaw
        else:
            yield from self._judge(_joined(f"{repository}/{image.text}".strip("/"), version, image.line), dotted(trail))

    def _plan(self) -> Text | None:
        """A System Upgrade Controller Plan appends its version to an image without a tag."""
        if self._kind != "Plan":
            return None
        version = _first(self._doc.items["spec"], "version") if "spec" in self._doc.items else None
        return Text(version.text.replace("+", "-"), False, version.line) if version else None

    def _mapped(self, node: Map, trail: Trail) -> Iterator[Flaw]:
        """`{registry, repository, tag, digest}`, as Helm values have it."""
        repository = word(node, "repository") or word(node, "reference")
        if _elsewhere(trail) or "://" in repository:
            return
        tag, digest = _first(node, "tag", "imageTag", "version"), word(node, "digest")
        holder = str(trail[1] if trail else "").lower()
        if not (repository or self._values or "imageTag" in node.items or holder.endswith("image")):
            return  # a tag of something else
        if tag is not None and (flaw := not_final(tag, dotted(trail, "tag"))):
            yield flaw
            return
        if not repository or (not (tag and tag.text) and not digest):
            yield from self._tag(tag, dotted(trail, "tag"))
            return
        registry = word(node, "registry")
        text = f"{registry}/{repository}" if registry else repository
        whole = _joined(text, tag if tag and tag.text else None, node.line)
        if digest:
            whole = Text(f"{whole.text}@{digest}", False, whole.line)
        yield from self._judge(whole, dotted(trail), pinned=_is_canary(trail))

    def _tag(self, tag: Text | None, field: str) -> Iterator[Flaw]:
        """A tag alone: the chart knows the rest."""
        if tag is None or tag.null or not tag.text:
            return
        if flaw := not_final(tag, field):
            yield flaw
        else:
            yield from self._judge(_joined("chart.example/image", tag, tag.line), field)

    def _kustomized(self, node: Map, trail: Trail) -> Iterator[Flaw]:
        tag, digest = _first(node, "newTag"), word(node, "digest")
        name = word(node, "newName") or word(node, "name")
        if tag is not None and (flaw := not_final(tag, dotted(trail, "newTag"))):
            yield flaw
        elif name and ((tag and tag.text) or digest):
            whole = _joined(name, tag, node.line)
            yield from self._judge(
                Text(f"{whole.text}@{digest}" if digest else whole.text, False, whole.line), dotted(trail)
            )

    def _judge(self, value: Node, field: str, *, pinned: bool = False) -> Iterator[Flaw]:
        if not isinstance(value, Text):
            yield Flaw(value.line, field, "invalid-reference", "is no text", references.REMEDY["invalid-reference"])
            return
        if self._patterns and _PATTERN.search(value.text):
            return
        if (name := parameters.asked(self._doc, value.text)) and (given := self._parameters.get(name)):
            if (name, pinned) not in self._followed:  # else it is told already
                self._followed.add((name, pinned))
                for one in given:
                    yield from self._judge(one, f"{field}, parameter {name}", pinned=pinned)
            return
        if flaw := not_final(value, field):
            yield flaw
            return
        seen = references.desired(value.text)
        for code in seen.codes:
            yield Flaw(
                value.line, field, code, f"{value.text[:300]!r} {references.SAID[code]}", references.REMEDY[code]
            )
        if not seen.codes and not seen.pin and (pinned or self._is_cuda(seen, field)):
            message = f"{value.text!r} is a CUDA or canary image without a digest"
            remedy = "Pin it by @sha256:; what proves the GPU must not change by itself."
            yield Flaw(value.line, field, "canary-not-pinned", message, remedy)

    def _is_cuda(self, seen: references.Desired, field: str) -> bool:
        if seen.reference is None or self._kind in NVIDIA_KINDS:
            return False  # older charts wait in a CUDA image, which proves nothing
        if self._values and not OPERANDS.isdisjoint(field.split(".")):
            return False
        name, tag = seen.reference.name, seen.reference.tag
        return re.fullmatch(r"cuda(?:-.*)?", name) is not None or (name == "samples" and "cuda" in tag)


def _first(node: Node, *names: str) -> Text | None:
    """The first of these keys that holds text, even an empty one."""
    if isinstance(node, Map):
        for name in names:
            value = node.items.get(name)
            if isinstance(value, Text):
                return value
    return None


def _joined(base: str, version: Text | None, number: int) -> Text:
    """The reference that is composed: by `@` for a digest, else by `:`, as the operator and the charts do."""
    if version is None or version.null or not version.text:
        return Text(base, False, number)
    return Text(f"{base}{'@' if version.text.startswith('sha256:') else ':'}{version.text}", False, version.line)


def _elsewhere(trail: Trail) -> bool:
    while trail is not None:
        trail, step = trail
        if step in _NOT_MANIFESTS:
            return True
    return False


def _is_canary(trail: Trail) -> bool:
    while trail is not None:
        trail, step = trail
        if isinstance(step, str) and "canary" in step.lower():
            return True
    return False
