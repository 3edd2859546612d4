"""What a container runtime says it runs: the forms of `imageID` in a pod's status.

containerd and CRI-O give `repo@sha256:…`, the manifest or index that was pulled; an imported image, and CRI-O 1.28,
1.29 and later ones after a restart (cri-o/cri-o#7149, #9925), give the config digest, by which nothing can be pulled.
"""

from __future__ import annotations

import re
from functools import lru_cache

import msgspec

from gpurunbook.errors import InputError
from gpurunbook.supply.references import is_digest, parse

_HEX = re.compile(r"[0-9a-f]{64}")
_CONFIG_PREFIXES = ("", "containerd://", "docker://")
_PULLABLE = "docker-pullable://"
_IMPORTED = re.compile(r"import-[0-9]{4}-[0-9]{2}-[0-9]{2}")

# Both would be valid names, and are digests that were cut or of another algorithm: Docker prints short IDs of 12.
_CUT_DIGEST = re.compile(r"(?:sha[0-9]+|md5|blake3):[^/@]*|[0-9A-Fa-f]{12,}")


class Runtime(msgspec.Struct, frozen=True, gc=False):
    """How an image ID is read.

    word: its class (manifest, local, config, mutable, malformed); code: "" or the reason code; repository and digest:
    of a manifest or local one, normalised, else "".
    """

    word: str
    code: str = ""
    repository: str = ""
    digest: str = ""


MALFORMED = Runtime("malformed", "malformed-runtime")
MUTABLE = Runtime("mutable", "mutable-runtime")
CONFIG = Runtime("config", "config-digest-only")
UNRESOLVED = Runtime("unresolved", "unresolved")
NEVER_STARTED = Runtime("never-started", "never-started")
UNSEEN = Runtime("unresolved")
"""An image volume: no status says what was mounted, unless the alpha gate ImageVolumeWithDigest is on."""


@lru_cache(maxsize=8192)
def runtime(image_id: str, crio: bool = False) -> Runtime:
    """Writes nothing. The class of an image ID that is not empty.

    crio: whether the same status entry's containerID begins `cri-o://`; bare hex is a config digest only there.
    """
    if _HEX.fullmatch(image_id):
        return CONFIG if crio else MALFORMED
    if any(image_id.startswith(p) and is_digest(image_id[len(p) :]) for p in _CONFIG_PREFIXES):
        return CONFIG
    text = image_id.removeprefix(_PULLABLE)
    if _CUT_DIGEST.fullmatch(text):
        return MALFORMED
    try:
        reference = parse(text)
    except InputError:
        return MALFORMED
    if not reference.pinned:
        return MUTABLE
    if not is_digest(reference.digest):
        return MALFORMED
    if _IMPORTED.fullmatch(reference.name):
        return Runtime("local", "local-import", reference.repository, reference.digest)
    return Runtime("manifest", "", reference.repository, reference.digest)
