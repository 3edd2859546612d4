"""Everything that gpurunbook raises on purpose.

    RunbookError
    ├── ParameterError (ValueError)      a parameter is missing, unknown or of another type
    │   └── RunBound                     the run goes by other parameters, and stays with them
    ├── InputError (ValueError)          a file or an answer is not what its kind must be
    ├── GateError                        the run may not go on
    │   ├── Stopped                      a check, change or wait closed the run
    │   ├── OutOfOrder                   a step before this one has not passed
    │   ├── RunInUse                     another process holds this run
    │   ├── Drifted                      what was judged is no longer so
    │   └── NotApproved                  no valid approval for this plan
    ├── ClusterError                     the API server did not give what was asked
    │   ├── Unauthorized                 401
    │   ├── Denied                       403
    │   ├── NotFound                     404
    │   ├── Conflict                     409
    │   ├── Gone                         410
    │   ├── Invalid                      415, 422
    │   ├── Throttled                    429
    │   ├── ServerFault                  500 and above
    │   ├── Unreachable                  no answer: refused, reset, cut off, too slow
    │   └── Garbled                      an answer that is not the JSON that was due
    ├── DeadlineError (TimeoutError)     a wait ran out of time
    ├── JournalError                     the journal cannot be read or extended
    │   └── Raced                        another writer extended it first
    └── EvidenceError                    a bundle cannot be sealed or does not verify

A class stands here only where a caller or a verdict differs. The message says what was seen, what was
wanted, which object, and what to do next.
"""

from __future__ import annotations


class RunbookError(Exception):
    """Base of all. `code` is the stable word for machines, `remedy` the next thing to do."""

    code = "error"

    def __init__(self, message: str, *, subject: str = "", remedy: str = "", code: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.subject = subject
        self.remedy = remedy
        if code:
            self.code = code

    def __str__(self) -> str:
        head = f"{self.subject}: {self.message}" if self.subject else self.message
        return f"{head.rstrip('.')}. {self.remedy}" if self.remedy else head


class ParameterError(RunbookError, ValueError):
    """A parameter is missing, unknown, or not of its exact type. Raised before any API call."""

    code = "parameter"


class RunBound(ParameterError):
    """A step has passed, or something was authorised or changed, by other parameters than these."""

    code = "run-bound"


class InputError(RunbookError, ValueError):
    """A file, or an answer of a tool, cannot be read as what it must be."""

    code = "input"


class GateError(RunbookError):
    """The run may not go on from here."""

    code = "gate"


class Stopped(GateError):
    """A check, change or wait said no and has closed the run with a verdict."""

    code = "stopped"


class OutOfOrder(GateError):
    """A step that must come first has not passed in this run."""

    code = "out-of-order"


class RunInUse(GateError):
    """Another live process holds the run."""

    code = "run-in-use"


class Drifted(GateError):
    """What was judged is not what is there now."""

    code = "drifted"


class NotApproved(GateError):
    """No valid approval covers the plan."""

    code = "not-approved"


class ClusterError(RunbookError):
    """The API server did not give what was asked. `status` is the HTTP status, 0 without an answer."""

    code = "cluster"

    def __init__(
        self,
        message: str,
        *,
        status: int = 0,
        subject: str = "",
        remedy: str = "",
        code: str = "",
        retry_after: float | None = None,
    ) -> None:
        super().__init__(message, subject=subject, remedy=remedy, code=code)
        self.status = status
        self.retry_after = retry_after


class Unauthorized(ClusterError):
    """401: the credentials are missing, wrong or expired."""

    code = "unauthorized"


class Denied(ClusterError):
    """403: known, but not allowed."""

    code = "forbidden"


class NotFound(ClusterError):
    """404."""

    code = "not-found"


class Conflict(ClusterError):
    """409: the object moved on, or exists already."""

    code = "conflict"


class Gone(ClusterError):
    """410: the continue token or resourceVersion has expired."""

    code = "gone"


class Invalid(ClusterError):
    """415 or 422: the server refuses the content."""

    code = "invalid"


class Throttled(ClusterError):
    """429 that went on past the retries; `retry_after` in seconds where the server named it."""

    code = "throttled"


class ServerFault(ClusterError):
    """500 and above."""

    code = "server-error"


class Unreachable(ClusterError):
    """No whole answer: refused, reset, cut off or too slow."""

    code = "unreachable"


class Garbled(ClusterError):
    """A 2xx answer whose body is not the JSON that was due."""

    code = "garbled"


class DeadlineError(RunbookError, TimeoutError):
    """A wait ran out of time."""

    code = "deadline"


class JournalError(RunbookError):
    """The journal cannot be read, is not a whole chain, or cannot be extended."""

    code = "journal"


class Raced(JournalError):
    """Another writer extended the journal between our reading and our writing."""

    code = "raced"


class EvidenceError(RunbookError):
    """A run cannot be sealed, or a bundle does not verify."""

    code = "evidence"
