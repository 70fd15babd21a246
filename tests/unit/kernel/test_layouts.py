"""The formats this package decodes are the structures the objects were compiled with, on every architecture."""

import pytest

from tracer.errors import TracerError
from tracer.kernel import layouts
from tracer.kernel.btf import StructLayout
from tracer.kernel.probes import PROGRAMS
from tracer.kernel.program_object import ProgramObject


@pytest.mark.parametrize("architecture", ["x86_64", "aarch64"])
@pytest.mark.parametrize("name", sorted(layouts.LAYOUTS))
def test_every_member_lies_where_the_object_puts_it(name, architecture):
    with ProgramObject.shipped(name, architecture) as opened:
        for layout in layouts.LAYOUTS[name]:
            assert opened.btf.structs[layout.name] == layout.expected(), layout.name


@pytest.mark.parametrize("name", sorted(PROGRAMS))
def test_the_programs_named_here_are_those_of_the_object(name):
    with ProgramObject.shipped(name) as opened:
        assert set(opened.programs()) == set(PROGRAMS[name])


def test_an_object_of_another_version_is_refused_with_the_structure_named():
    structs = {layout.name: layout.expected() for layout in layouts.LAYOUTS["process"]}
    layouts.check_layouts("process", structs)
    structs["exit_record"] = StructLayout(56, {**structs["exit_record"].members, "more": (48, 8)})
    with pytest.raises(TracerError, match=r"process: struct exit_record differs .*make -C bpf"):
        layouts.check_layouts("process", structs)


def test_an_architecture_without_object_is_told_how_to_build_it():
    with pytest.raises(TracerError, match=r"socket\.riscv64\.bpf\.o is missing: build it with make -C bpf"):
        ProgramObject.shipped("socket", "riscv64")
