"""Collecting evidence: crane, cosign, syft and trivy for each image, by digest, with a record of every call.

What a tool would read besides its arguments (its own variables, files in the working directory) is kept away from it,
so that the argument list on record is all that it was told. What is there and whole is not done again.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec

from gpurunbook.digests import digest as sha256
from gpurunbook.errors import DeadlineError, InputError
from gpurunbook.sources import files, jobs, pins, tools
from gpurunbook.sources.jobs import LOOPBACK, Job
from gpurunbook.supply import strictjson
from gpurunbook.supply.calls import FORM, Call, read_call
from gpurunbook.supply.decisions import Decisions, Signer
from gpurunbook.supply.family import Family
from gpurunbook.supply.members import at
from gpurunbook.supply.references import is_digest

ANSWERS: Mapping[str, frozenset[int]] = {"cosign": frozenset({0, 10, 12, 13})}
"""Exit codes that say something about an image, where it is not 0 alone."""

STDERR = 4000
"""Characters of a call's stderr that are kept, the last ones."""

_OWN = ("COSIGN_", "CRANE_", "REKOR_", "SIGSTORE_", "SYFT_", "TRIVY_", "TUF_")
_PARTIAL = ".partial-"


@dataclass(frozen=True)
class Plan:
    """What to collect. images: digest → repositories; platforms: in use, none for all that an index has.

    keys: SHA-256 of a public key → its file; mirrors: beginning of a repository → what stands there instead; cache:
    trivy's, None for its own; timeout: seconds of one call.
    """

    out: Path
    images: Mapping[str, Sequence[str]]
    pins: Mapping[str, str]
    decisions: Decisions
    family: Family | None = None
    platforms: tuple[str, ...] = ()
    keys: Mapping[str, Path] | None = None
    mirrors: Mapping[str, str] | None = None
    cache: Path | None = None
    jobs: int = 2
    timeout: float = 900.0


@dataclass(frozen=True)
class Done:
    """A call that stands. kept: it stood already; answered: it says something about the image."""

    job: Job
    call: Call
    kept: bool

    @property
    def answered(self) -> bool:
        """Writes nothing."""
        whole = self.call.exit_code != 0 or len(self.call.outputs) == len(self.job.outputs)
        return whole and self.call.exit_code in ANSWERS.get(self.call.tool, frozenset({0}))


@dataclass(frozen=True)
class Collected:
    """Every call that stands, by its record; and the digests for which cosign was not run, with the reason."""

    done: tuple[Done, ...]
    unverified: Mapping[str, str]

    @property
    def whole(self) -> bool:
        """Writes nothing. Whether every call says something about its image."""
        return all(one.answered for one in self.done)


def collect(plan: Plan, told: Callable[[int, int], None] = lambda _done, _all: None) -> Collected:
    """Runs the tools for every image, and writes what they say and the records of the calls under `plan.out`.

    told: called with how many calls are done, of how many known so far. Raises InputError before any image is looked
    at when a tool is missing or not of its pinned version (`tool-missing`, `tool-version`), when the platforms of an
    image cannot be known (`platforms-unknown`), when another process collects there (`in-use`), and when the folder
    takes nothing more (`unwritable`).
    """
    try:
        plan.out.mkdir(parents=True, exist_ok=True)
        with _alone(plan.out), ThreadPoolExecutor(plan.jobs) as pool:
            for left in plan.out.glob(f"{_PARTIAL}*"):  # of a collection that was killed
                shutil.rmtree(left)
            for left in plan.out.rglob(".*.part"):
                left.unlink()
            try:
                return _Work(plan, pool, told).whole()
            except BaseException:
                pool.shutdown(wait=True, cancel_futures=True)
                raise
    except OSError as wrong:
        subject = str(wrong.filename or plan.out)
        raise InputError(f"cannot be written: {wrong.strerror}", subject=subject, code="unwritable") from None


@contextlib.contextmanager
def _alone(out: Path) -> Iterator[None]:
    descriptor = os.open(out, os.O_RDONLY | os.O_DIRECTORY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError:
        raise InputError("another process collects there", subject=str(out), code="in-use") from None
    finally:
        os.close(descriptor)


class _Work:
    """One collection."""

    def __init__(self, plan: Plan, pool: ThreadPoolExecutor, told: Callable[[int, int], None]) -> None:
        self._plan, self._pool, self._told = plan, pool, told
        self._family = plan.family or Family()
        self._done: list[Done] = []
        self._known = 0
        self._unverified: dict[str, str] = {}
        self._env = {name: value for name, value in os.environ.items() if not name.startswith(_OWN)}
        self._database = self._tools()

    def whole(self) -> Collected:
        images = {digest: self._where(repositories) for digest, repositories in sorted(self._plan.images.items())}
        self._documents([(digest, digest, where) for digest, (where, _) in images.items()])
        said = [  # an index that is only said to hold a manifest must prove it, or no signature over it counts
            (digest, parent, where)
            for digest, (where, _) in images.items()
            for parent in sorted(self._family.parents(digest) - set(images))
        ]
        self._documents(said)
        wanted = {digest: self._wanted(digest) for digest in images}
        children = [
            (digest, child, where)
            for digest, (where, _) in images.items()
            for platform, child in self._family.children(digest).items()
            if platform in wanted[digest]
        ]
        self._documents(children)
        named = [job for digest, (where, signer) in images.items() for job in self._signature(digest, where, signer)]
        for digest, (where, _) in images.items():
            for platform in wanted[digest]:
                named += [jobs.sbom(digest, platform, where), self._scan(digest, platform, where)]
        self._all(named)
        self._forget()
        return Collected(tuple(sorted(self._done, key=lambda one: one.job.record)), dict(self._unverified))

    def _tools(self) -> str:
        """The SHA-256 of what trivy says of its database, once every tool has answered with its pinned version."""
        said = pins.check(self._plan.pins, self._env, self._cache())
        made = sha256(said)
        files.write(self._plan.out / f"trivy-version-{made[7:19]}.json", said)
        return made

    def _cache(self) -> tuple[str, ...]:
        return ("--cache-dir", str(self._plan.cache.resolve())) if self._plan.cache else ()

    def _where(self, repositories: Sequence[str]) -> tuple[str, Signer | None]:
        """The repository that is asked, through its mirror, and who signs it: one with a signer before others."""
        signed = {name: self._plan.decisions.signer(name) for name in repositories}
        name = min(signed, key=lambda one: (signed[one] is None or bool(signed[one].reason), one))  # type: ignore[union-attr]
        for start, instead in sorted((self._plan.mirrors or {}).items(), key=lambda pair: -len(pair[0])):
            if name == start or name.startswith(f"{start}/"):
                return instead + name[len(start) :], signed[name]
        return name, signed[name]

    def _documents(self, named: Iterable[tuple[str, str, str]]) -> None:
        """Index or manifest, and config, as the registry has them: their SHA-256 proves them."""
        fetched = [(one, jobs.document("manifest", *one)) for one in named]
        self._all([job for _, job in fetched])
        configs = []
        for (digest, own, where), job in fetched:
            document = self._learn(job, own)
            if is_digest(config := str(at(document, "config", "digest"))):  # a file is named by it
                configs.append((jobs.document("config", digest, config, where, job.argv[-1]), config))
        self._all([job for job, _ in configs])
        for job, config in configs:
            self._learn(job, config)

    def _learn(self, job: Job, wanted: str) -> Any:
        """Takes a document in, when its digest is the one that was asked for."""
        path = self._plan.out / job.place / next(iter(job.outputs))
        if not path.is_file():
            return None
        data = path.read_bytes()
        with contextlib.suppress(InputError):
            document = strictjson.loads(data)
            if isinstance(document, dict) and sha256(data) == wanted:
                self._family.add(wanted, document)
                return document
        return None

    def _wanted(self, digest: str) -> tuple[str, ...]:
        platforms, unknown = self._family.wanted(digest, self._plan.platforms)
        if unknown:
            remedy = "Name each platform in use: --platform linux/amd64."
            raise InputError(unknown, subject=digest, remedy=remedy, code="platforms-unknown")
        return platforms

    def _signature(self, digest: str, where: str, signer: Signer | None) -> Iterator[Job]:
        key = (self._plan.keys or {}).get(signer.key) if signer and signer.key else None
        if signer is None:
            self._unverified[digest] = f"nothing says who signs {where}"
        elif signer.reason:
            self._unverified[digest] = f"recorded as not signed: {signer.reason}"
        elif signer.key and key is None:
            self._unverified[digest] = f"no --key has the fingerprint {signer.key}"
        if signer is None or digest in self._unverified:
            return
        if key is not None:
            line = ["--key", str(key.resolve()), *([] if signer.log else ["--insecure-ignore-tlog=true"])]
        else:
            line = ["--certificate-identity", signer.identity, "--certificate-oidc-issuer", signer.issuer]
        for signed in (digest, *sorted(self._family.parents(digest))):
            name = "cosign" if signed == digest else f"cosign-index-{signed[7:19]}"
            argv = ("cosign", "verify", *line, "--output", "json", f"{where}@{signed}")
            yield Job(jobs.folder(digest), name, argv, {f"{name}.json": ""}, key=signer.key)

    def _scan(self, digest: str, platform: str, where: str) -> Job:
        # A cache of layers on disk is locked by one process; the database is only read.
        line = ["trivy", "image", "--format", "json", "--platform", platform, "--image-src", "remote"]
        line += ["--scanners", "vuln", "--show-suppressed", "--skip-db-update", "--skip-java-db-update"]
        line += ["--offline-scan", "--skip-version-check", "--no-progress", "--cache-backend", "memory", *self._cache()]
        line += [
            "--timeout",
            f"{int(self._plan.timeout)}s",
            *(["--insecure"] if LOOPBACK.fullmatch(where) else []),
        ]
        argv = (*line, f"{where}@{digest}")
        return Job(jobs.folder(digest, platform), "trivy", argv, {"trivy.json": ""}, database=self._database)

    def _all(self, named: Sequence[Job]) -> None:
        each = {job.record: job for job in named}.values()  # one manifest may stand in an index for two platforms
        self._known += len(each)
        for future in as_completed([self._pool.submit(self._one, job) for job in each]):
            self._done.append(future.result())
            self._told(len(self._done), self._known)

    def _one(self, job: Job) -> Done:
        if (stands := self._stands(job)) is not None:
            return Done(job, stands, kept=True)
        out = self._plan.out
        for name in (*job.outputs, f"{job.name}.call.json"):  # nothing of an earlier call may look like this one's
            (out / job.place / name).unlink(missing_ok=True)
        work = Path(tempfile.mkdtemp(prefix=_PARTIAL, dir=out))
        try:
            return Done(job, self._run(job, work), kept=False)
        finally:
            shutil.rmtree(work)

    def _run(self, job: Job, work: Path) -> Call:
        own = jobs.settings(job)
        (work / jobs.SYFT).write_bytes(own)
        started = datetime.now(UTC).isoformat(timespec="seconds").replace("+00:00", "Z")
        call = Call(FORM, job.argv[0], self._plan.pins[job.argv[0]], list(job.argv), started, 0.0, None, "", [])
        settings = sha256(own) if own else ""
        call = msgspec.structs.replace(call, key=job.key, database=job.database, settings=settings)
        try:
            ended = tools.run(job.argv, timeout=self._plan.timeout, env=self._env, cwd=work)
        except DeadlineError as slow:
            call = msgspec.structs.replace(call, stderr=slow.message, seconds=self._plan.timeout)
        else:
            outputs = []
            for name, made in job.outputs.items():
                data = (work / made).read_bytes() if made and (work / made).is_file() else b""
                data = data if made else ended.stdout
                if ended.returncode == 0 and _is_json(data):
                    files.write(self._plan.out / job.place / name, data)
                    outputs.append(sha256(data))
            stderr = ended.stderr.decode(errors="replace")[-STDERR:]
            seconds = round(ended.seconds, 3)
            call = msgspec.structs.replace(
                call, exit_code=ended.returncode, stderr=stderr, seconds=seconds, outputs=outputs
            )
        text = json.dumps(call.as_json(), sort_keys=True, indent=1).encode() + b"\n"
        files.write(self._plan.out / job.record, text)
        return call

    def _stands(self, job: Job) -> Call | None:
        """The record of an earlier call that is whole: the same words to the same version, each output as it was."""
        place = self._plan.out / job.place
        try:
            call = read_call(strictjson.loads((self._plan.out / job.record).read_bytes()))
            there = [sha256((place / name).read_bytes()) for name in job.outputs if (place / name).is_file()]
        except (OSError, InputError):
            return None
        wanted = (list(job.argv), self._plan.pins[job.argv[0]], job.key, job.database, 0, len(job.outputs))
        same = (call.argv, call.version, call.key, call.database, call.exit_code, len(there)) == wanted
        told = call.settings == (sha256(jobs.settings(job)) if jobs.settings(job) else "")
        return call if same and told and there == call.outputs else None

    def _forget(self) -> None:
        """Takes away what trivy said of databases that no scan here was made with."""
        for path in self._plan.out.glob("trivy-version-*.json"):
            if path.name != f"trivy-version-{self._database[7:19]}.json":
                path.unlink()


def _is_json(data: bytes) -> bool:
    """Whether it is one whole JSON text: a tool that ends with 0 may have been cut off, or say something else."""
    try:
        strictjson.loads(data)
    except InputError:
        return False
    return True
