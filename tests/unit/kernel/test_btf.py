"""The BTF reader against what bpftool, another implementation, says of the same objects."""

import json
import subprocess
from importlib.resources import files

import pytest

from tracer.kernel.btf import parse_btf
from tracer.kernel.program_object import ProgramObject

ARCHITECTURES = ("x86_64", "aarch64")


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("name", ["socket", "process"])
def test_structures_and_variables_are_those_bpftool_finds(name, architecture):
    path = files("tracer.kernel") / "objects" / f"{name}.{architecture}.bpf.o"
    dump = subprocess.run(["bpftool", "-j", "btf", "dump", "file", str(path)], check=True, capture_output=True).stdout
    types = json.loads(dump)["types"]
    with ProgramObject.shipped(name, architecture) as opened:
        btf = opened.btf
    structs = {each["name"]: each for each in types if each["kind"] == "STRUCT" and each["name"] != "(anon)"}
    assert set(btf.structs) == set(structs)
    for struct_name, each in structs.items():
        assert btf.structs[struct_name].size == each["size"]
        assert {member: offset for member, (offset, _) in btf.structs[struct_name].members.items()} == {
            member["name"]: member["bits_offset"] // 8 for member in each["members"]
        }
    sections = {each["name"]: each for each in types if each["kind"] == "DATASEC"}
    assert set(btf.sections) == set(sections)
    for section, each in sections.items():
        assert len(btf.sections[section]) == each["vlen"]


def test_the_other_byte_order_is_refused():
    with pytest.raises(ValueError, match="not BTF"):
        parse_btf(b"\xeb\x9f" + bytes(62))
