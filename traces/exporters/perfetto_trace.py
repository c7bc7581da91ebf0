"""A timeline as a Perfetto trace: TrackEvent packets of the protocol buffers that Perfetto's own package defines.

Format: https://perfetto.dev/docs/reference/synthetic-track-event, times in nanoseconds.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import pyarrow as pa

from rollsim.traces.errors import BadInput, Fault
from rollsim.traces.exporters.tracks import Slice, tracks

_SEQUENCE = 1


def perfetto_packets(tables: Mapping[str, pa.Table]) -> Iterator[bytes]:
    """Yield the trace in pieces, which one after the other are its bytes.

    Raises
    ------
    BadInput
        Perfetto's package is not installed.
    """
    trace = _protos()
    made = _Tracks(trace)
    first = True
    for shown in tracks(tables):
        message = trace.Trace()
        if isinstance(shown, Slice):
            uuid = made.uuid(message, shown.track)
            begin = _event(message, shown.t0_s, uuid, trace.TrackEvent.TYPE_SLICE_BEGIN)
            begin.name = shown.name
            for key, value in shown.args.items():
                note = begin.debug_annotations.add(name=key)
                if isinstance(value, str):
                    note.string_value = value
                else:
                    note.int_value = value
            _event(message, shown.t1_s, uuid, trace.TrackEvent.TYPE_SLICE_END)
        else:
            for name, value in shown.values.items():
                uuid = made.uuid(message, (*shown.track, name), counter=True)
                _event(message, shown.t_s, uuid, trace.TrackEvent.TYPE_COUNTER).double_counter_value = value
        if first:
            message.packet[0].sequence_flags = trace.TracePacket.SEQ_INCREMENTAL_STATE_CLEARED
            first = False
        yield message.SerializeToString()


class _Tracks:
    """Numbers of tracks; the first time that one is asked for, its descriptor and those above it are written."""

    def __init__(self, trace: Any) -> None:
        self._ordering = trace.TrackDescriptor.EXPLICIT
        self._numbers: dict[tuple[str, ...], int] = {}

    def uuid(self, message: Any, track: tuple[str, ...], *, counter: bool = False) -> int:
        if track in self._numbers:
            return self._numbers[track]
        *parents, name = track
        above = self.uuid(message, tuple(parents)) if parents else None
        self._numbers[track] = number = len(self._numbers) + 1
        packet = message.packet.add(trusted_packet_sequence_id=_SEQUENCE)
        packet.track_descriptor.uuid = number
        packet.track_descriptor.name = name
        packet.track_descriptor.child_ordering = self._ordering
        packet.track_descriptor.sibling_order_rank = number
        if above is not None:
            packet.track_descriptor.parent_uuid = above
        if counter:
            packet.track_descriptor.counter.SetInParent()
        return number


def _event(message: Any, t_s: float, uuid: int, kind: int) -> Any:
    packet = message.packet.add(timestamp=round(t_s * 1e9), trusted_packet_sequence_id=_SEQUENCE)
    packet.track_event.type = kind
    packet.track_event.track_uuid = uuid
    return packet.track_event


def _protos() -> Any:
    try:
        from perfetto.protos.perfetto.trace import perfetto_trace_pb2  # noqa: PLC0415 - an extra
    except ImportError as error:
        allowed = "pip install 'rollsim[perfetto]'; --format chrome needs nothing, and Perfetto opens it as well"
        raise BadInput(Fault("--format", given="perfetto", message="needs its package", allowed=allowed)) from error
    return perfetto_trace_pb2
