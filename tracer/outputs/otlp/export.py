"""Exporting rows that are all there already, of a store or a capture."""

from collections.abc import Iterable

from tracer.errors import TracerError
from tracer.outputs.otlp.endpoint import Endpoint
from tracer.outputs.otlp.groups import Groups
from tracer.outputs.otlp.output import BATCH_SPANS
from tracer.outputs.otlp.sender import Refused, Sender
from tracer.outputs.otlp.spans import Span, tree
from tracer.rows import Row


def export(rows: Iterable[Row], collector: Endpoint, share: float) -> int:
    """How many spans were sent. Of rows with one kind and id only one may come. Raises TracerError."""
    groups = Groups(share)
    groups.feed(rows)
    sender = Sender(collector)
    sent = 0
    batch: list[Span] = []
    try:
        for group in groups.finish():
            batch += tree(group.root, group.calls.values(), group.steps.values())
            if len(batch) >= BATCH_SPANS:
                sender.send_spans(batch)
                sent += len(batch)
                batch = []
        if batch:
            sender.send_spans(batch)
    except Refused as refused:
        raise TracerError(f"--otlp {collector.url}: the collector did not take the spans: {refused}") from None
    finally:
        sender.close()
    return sent + len(batch)
