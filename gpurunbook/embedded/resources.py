"""Which resources are served, and what is special about each.

Built-in resources stand in a table; custom resources come from the CustomResourceDefinition objects in the
store. One stored object serves every version of its resource: no fields are converted.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from gpurunbook.embedded.status import Obj


@dataclass(frozen=True)
class Resource:
    """One resource at one version.

    status: has a status subresource; generation: metadata.generation counts changes of the spec;
    unconditional: may be replaced without a resourceVersion; schema: the OpenAPI schema of a custom resource.
    """

    group: str
    version: str
    plural: str
    kind: str
    namespaced: bool = False
    status: bool = False
    generation: bool = False
    unconditional: bool = True
    custom: bool = False
    schema: Obj = field(default_factory=dict, compare=False)

    @property
    def api_version(self) -> str:
        """`v1` or `group/version`."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def table(self) -> tuple[str, str]:
        """Where the objects are stored."""
        return (self.group, self.plural)


# n namespaced, s status subresource, g generation, c conditional: a PUT without resourceVersion is refused
_BUILTIN = """
v1: Namespace s, Node s, Pod nsg, ConfigMap n, Secret n, Service ns, ServiceAccount n, Event n, Endpoints n,
  PersistentVolume s, PersistentVolumeClaim ns, ReplicationController nsg, ResourceQuota ns, LimitRange n
apps/v1: DaemonSet nsg, Deployment nsg, ReplicaSet nsg, StatefulSet nsg, ControllerRevision n
batch/v1: Job nsg, CronJob nsg
coordination.k8s.io/v1: Lease nc
events.k8s.io/v1: Event n
policy/v1: PodDisruptionBudget nsgc
discovery.k8s.io/v1: EndpointSlice ng
networking.k8s.io/v1: NetworkPolicy ng, Ingress nsg
node.k8s.io/v1: RuntimeClass c
scheduling.k8s.io/v1: PriorityClass g
storage.k8s.io/v1: StorageClass -, CSIDriver c, CSINode c, VolumeAttachment sc
rbac.authorization.k8s.io/v1: Role n, RoleBinding n, ClusterRole -, ClusterRoleBinding -
resource.k8s.io/v1: ResourceClaim ns, ResourceClaimTemplate n, ResourceSlice g, DeviceClass g
resource.k8s.io/v1beta1: ResourceClaim ns, ResourceClaimTemplate n, ResourceSlice g, DeviceClass g
resource.k8s.io/v1beta2: ResourceClaim ns, ResourceClaimTemplate n, ResourceSlice g, DeviceClass g
admissionregistration.k8s.io/v1: ValidatingAdmissionPolicy sgc, ValidatingAdmissionPolicyBinding gc,
  ValidatingWebhookConfiguration gc, MutatingWebhookConfiguration gc
apiextensions.k8s.io/v1: CustomResourceDefinition sgc
apiregistration.k8s.io/v1: APIService s
"""

# answered, never stored: (group, versions, plural, kind, namespaced)
REVIEWS = {
    ("authorization.k8s.io", "selfsubjectaccessreviews"): ("SelfSubjectAccessReview", ("v1",)),
    ("authorization.k8s.io", "selfsubjectrulesreviews"): ("SelfSubjectRulesReview", ("v1",)),
    ("authentication.k8s.io", "selfsubjectreviews"): ("SelfSubjectReview", ("v1", "v1beta1", "v1alpha1")),
}


def plural_of(kind: str) -> str:
    """The plural that Kubernetes gives a built-in kind."""
    name = kind.lower()
    if name.endswith("endpoints"):
        return name
    if name.endswith(("s", "x")):
        return name + "es"
    return name[:-1] + "ies" if name.endswith("y") and not name.endswith("ay") else name + "s"


def _builtin() -> dict[tuple[str, str, str], Resource]:
    found = {}
    for line in _BUILTIN.replace(",\n ", ",").strip().splitlines():
        api_version, kinds = line.split(": ", 1)
        group, _, version = api_version.rpartition("/")
        for entry in kinds.split(","):
            kind, flags = entry.split()
            found[(group, version, plural_of(kind))] = Resource(
                group, version, plural_of(kind), kind,
                namespaced="n" in flags, status="s" in flags, generation="g" in flags, unconditional="c" not in flags,
            )  # fmt: skip
    return found


CRDS = ("apiextensions.k8s.io", "customresourcedefinitions")


class Catalog:
    """The served resources: the built-in table and what CustomResourceDefinitions add."""

    def __init__(self) -> None:
        self._builtin = _builtin()
        self._custom: dict[str, dict[tuple[str, str, str], Resource]] = {}

    def find(self, group: str, version: str, plural: str) -> Resource | None:
        """The resource at that path."""
        key = (group, version, plural)
        if key in self._builtin:
            return self._builtin[key]
        return next((served[key] for served in self._custom.values() if key in served), None)

    def of_kind(self, api_version: str, kind: str) -> Resource | None:
        """The resource of an object."""
        return next((r for r in self.all() if r.kind == kind and r.api_version == api_version), None)

    def all(self) -> list[Resource]:
        """Every served resource."""
        custom = [resource for served in list(self._custom.values()) for resource in served.values()]
        return [*self._builtin.values(), *custom]

    def define(self, name: str, crd: Obj | None) -> None:
        """Serve what a CustomResourceDefinition names; None ends it."""
        self._custom.pop(name, None)
        if crd is None:
            return
        spec = crd.get("spec", {})
        served: dict[tuple[str, str, str], Resource] = {}
        for version in spec.get("versions", ()):
            if version.get("served"):
                resource = _custom(spec, version)
                served[(resource.group, resource.version, resource.plural)] = resource
        self._custom[name] = served


def _custom(spec: Obj, version: Obj) -> Resource:
    names: dict[str, Any] = spec["names"]
    return Resource(
        spec["group"],
        version["name"],
        names["plural"],
        names["kind"],
        namespaced=spec.get("scope") == "Namespaced",
        status="status" in (version.get("subresources") or {}),
        generation=True,
        unconditional=False,
        custom=True,
        schema=(version.get("schema") or {}).get("openAPIV3Schema") or {},
    )
