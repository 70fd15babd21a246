"""BTF: the type description inside a BPF object, as far as needed to find structure members and section variables.

Format: Documentation/bpf/btf.rst of the kernel. Members are expected at whole bytes (the records have no bit fields).
"""

import struct
from dataclasses import dataclass

_HEADER = struct.Struct("=HBBIIIII")
_TYPE = struct.Struct("=III")
_TRIPLE = struct.Struct("=III")
MAGIC = 0xEB9F

_INT, _PTR, _ARRAY, _STRUCT, _UNION, _ENUM, _FWD = 1, 2, 3, 4, 5, 6, 7
_FUNC, _FUNC_PROTO, _VAR, _DATASEC, _FLOAT, _DECL_TAG, _ENUM64 = 12, 13, 14, 15, 16, 17, 19
_SIZED = {_INT, _STRUCT, _UNION, _ENUM, _DATASEC, _FLOAT, _ENUM64}
# Bytes after the common part: (for each of `vlen` entries, once).
_EXTRA = {
    _INT: (0, 4),
    _ARRAY: (0, 12),
    _STRUCT: (12, 0),
    _UNION: (12, 0),
    _ENUM: (8, 0),
    _FUNC_PROTO: (8, 0),
    _VAR: (0, 4),
    _DATASEC: (12, 0),
    _DECL_TAG: (0, 4),
    _ENUM64: (12, 0),
}


@dataclass(frozen=True, slots=True)
class StructLayout:
    """`members`: name -> (offset, size), bytes, in order of declaration."""

    size: int
    members: dict[str, tuple[int, int]]


@dataclass(frozen=True, slots=True)
class Btf:
    """Structures by name, and for each data section its variables: name -> (offset, size)."""

    structs: dict[str, StructLayout]
    sections: dict[str, dict[str, tuple[int, int]]]


@dataclass(slots=True)
class _Type:
    name: str
    kind: int
    size_or_type: int
    entries: list[tuple[int, int, int]]


def parse_btf(raw: bytes) -> Btf:
    """Raises ValueError when `raw` is not BTF of this machine's byte order."""
    magic, _version, _flags, header_bytes, type_start, type_bytes, string_start, string_bytes = _HEADER.unpack_from(raw)
    if magic != MAGIC:
        raise ValueError(f"not BTF of this byte order: magic {magic:#x}")
    strings = raw[header_bytes + string_start : header_bytes + string_start + string_bytes]

    def name_at(offset: int) -> str:
        return strings[offset : strings.index(0, offset)].decode()

    types = [_Type("void", 0, 0, [])]
    position = header_bytes + type_start
    end = position + type_bytes
    while position < end:
        name, info, size_or_type = _TYPE.unpack_from(raw, position)
        kind, entries = info >> 24 & 0x1F, info & 0xFFFF
        each, once = _EXTRA.get(kind, (0, 0))
        position += _TYPE.size
        listed: list[tuple[int, int, int]] = []
        if each == _TRIPLE.size or kind == _ARRAY:
            listed = list(_TRIPLE.iter_unpack(raw[position : position + (each * entries or once)]))
        position += each * entries + once
        types.append(_Type(name_at(name), kind, size_or_type, listed))

    def size_of(number: int) -> int:
        kind = types[number].kind
        if kind in _SIZED:
            return types[number].size_or_type
        if kind == _PTR:
            return 8
        if kind == _ARRAY:
            element, _index, count = types[number].entries[0]
            return count * size_of(element)
        return size_of(types[number].size_or_type) if number else 0

    structs = {
        each.name: StructLayout(
            each.size_or_type,
            {name_at(name): (bits // 8, size_of(member)) for name, member, bits in each.entries},
        )
        for each in types
        if each.kind == _STRUCT and each.name
    }
    sections = {
        each.name: {types[variable].name: (offset, size) for variable, offset, size in each.entries}
        for each in types
        if each.kind == _DATASEC
    }
    return Btf(structs, sections)
