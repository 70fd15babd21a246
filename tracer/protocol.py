"""The CRI's generated messages, without gRPC.

`cri_api/__init__` imports grpcio, which costs 17 MiB and a third of a second that only a client has use for: the
package is registered without running it.
"""

import importlib.util
import sys
import types


def _register(name: str) -> None:
    if name in sys.modules:
        return
    spec = importlib.util.find_spec(name)
    if spec is None or spec.submodule_search_locations is None:
        raise ImportError(f"{name} is not installed: pip install container-runtime-interface-api")
    package = types.ModuleType(name)
    package.__spec__ = spec
    package.__path__ = list(spec.submodule_search_locations)
    sys.modules[name] = package


_register("cri_api")

from cri_api.v1 import api_pb2  # noqa: E402  (only now)

__all__ = ["api_pb2"]
