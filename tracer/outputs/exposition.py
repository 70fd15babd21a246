"""Exposition: what `GET /metrics` answers."""

from prometheus_client import CollectorRegistry
from prometheus_client.exposition import choose_encoder

OPENMETRICS = "application/openmetrics-text"
PLAIN = "text/plain"


def exposition(registry: CollectorRegistry, accept: str) -> tuple[bytes, str]:
    """All metrics and their content type: OpenMetrics when the Accept header prefers it to plain text.

    Example: `application/openmetrics-text;version=1.0.0;q=0.5,text/plain;q=0.3,*/*;q=0.1` gives OpenMetrics 1.0;
    `*/*`, nothing, or what cannot be understood gives plain text 0.0.4.
    """
    weights = _weights(accept)
    weight = weights.get(OPENMETRICS, 0.0)
    encode, content_type = choose_encoder(OPENMETRICS if weight and weight >= weights.get(PLAIN, 0.0) else PLAIN)
    return encode(registry), content_type


def _weights(accept: str) -> dict[str, float]:
    """Media type -> its highest weight (RFC 9110, section 12.4.2)."""
    weights: dict[str, float] = {}
    for choice in accept.lower().split(","):
        media, *parameters = (part.strip() for part in choice.split(";"))
        weight = 1.0
        for parameter in parameters:
            if parameter.startswith("q="):
                try:
                    weight = float(parameter[2:])
                except ValueError:
                    weight = 0.0
        weights[media] = max(weight, weights.get(media, 0.0))
    return weights
