"""The kubelet's other sockets: CSI drivers, device plugins, DRA drivers, plugin registration."""

import re
from typing import Literal

PluginKind = Literal["volume", "device", "plugin_registration"]

_SERVICES: dict[str, PluginKind] = {
    "csi.v1.Identity": "volume",
    "csi.v1.Node": "volume",
    "pluginregistration.Registration": "plugin_registration",
    "v1beta1.DevicePlugin": "device",
    "v1beta1.Registration": "plugin_registration",
}

_DRA = re.compile(r"(k8s\.io\.kubelet\.pkg\.apis\.dra\.)?v1(alpha|beta)?\d*\.(DRAPlugin|Node|DRAResourceHealth)")

# `GetPath` of pkg/volume/util: <root>/pods/<uid>/volumes/<plugin>/<name>; a static pod's uid is an MD5 sum.
_POD_OF_PATH = re.compile(rb"/pods/([0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32})/volume")

_WITH_TARGET_PATH = frozenset({"NodePublishVolume", "NodeUnpublishVolume", "NodeGetVolumeStats", "NodeExpandVolume"})


def kind_of(service: str | None) -> PluginKind | None:
    """What a service of these sockets is for; None for any other."""
    if service is None:
        return None
    found = _SERVICES.get(service)
    return found or ("device" if _DRA.fullmatch(service) else None)


def pod_uid(service: str | None, method: str | None, request: bytes) -> str | None:
    """The pod whose volume a CSI call is about, from its target path; the rest of the message is left alone."""
    if service != "csi.v1.Node" or method not in _WITH_TARGET_PATH:
        return None
    found = _POD_OF_PATH.search(request)
    return None if found is None else found[1].decode()
