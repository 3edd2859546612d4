"""A detached signature that lies beside a file, by ssh or by cosign: whichever the key is of."""

from __future__ import annotations

from pathlib import Path

from gpurunbook.evidence import bundle, cosign, signing


def sign(data: bytes, key: Path | str, namespace: str) -> tuple[str, bytes]:
    """Writes nothing. The end of the signature's name (`bundle.SSH` or `bundle.COSIGN`), and the signature.

    key: an ssh key, or one of cosign's; namespace: of the ssh signature, cosign has none. Raises as their `sign`.
    """
    if cosign.signs(str(key)):
        return bundle.COSIGN, cosign.sign(data, str(key))
    return bundle.SSH, signing.sign(data, Path(key), namespace)
