#!/usr/bin/python3
"""Compares the API with its last release: what clients of that release use must still be there, and mean the same.

    proto/compatible.py              # prints each break of proto/released/VERSION.binpb; status 1 where there are any
    proto/compatible.py --release    # compares, then makes this state the last release, of CMakeLists.txt's version

Breaks: anything removed, renamed, renumbered, retyped or moved to another file; a field that becomes repeated, optional
or part of a oneof, or is no longer; RPCs with other messages or streaming; numbers and names that are no longer
reserved. Names count, since text and JSON files and generated code use them. Additions are no breaks, nor is
`deprecated`.
Needs protoc and Debian's python3-protobuf. The rules are tested in tests/proto.
"""
import argparse
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field
from google.protobuf.descriptor_pb2 import FileDescriptorSet

HERE = Path(__file__).resolve().parent
# File options that change names in generated code.
FILE_OPTIONS = ("go_package", "java_package", "java_outer_classname", "java_multiple_files", "csharp_namespace",
                "objc_class_prefix", "swift_prefix", "php_class_prefix", "php_namespace", "ruby_package")


def compiled(root: Path, protoc: str, *flags: str) -> FileDescriptorSet:
    """The set of all files under `root`, in a fixed order. `flags`: more of protoc's."""
    names = sorted(str(path.relative_to(root)) for path in root.rglob("*.proto"))
    with tempfile.NamedTemporaryFile(suffix=".binpb") as out:
        command = [protoc, f"-I{root}", "--include_imports", f"--descriptor_set_out={out.name}", *flags, *names]
        subprocess.run(command, check=True)
        return FileDescriptorSet.FromString(Path(out.name).read_bytes())


def version_of(path: Path) -> tuple[int, ...]:
    return tuple(int(part) for part in path.stem.split("."))


def last_release(folder: Path) -> Path | None:
    return max(folder.glob("*.binpb"), key=version_of, default=None)


def field_type(field: Field) -> str:
    return field.type_name.lstrip(".") or Field.Type.Name(field.type).removeprefix("TYPE_").lower()


def field_label(field: Field) -> str:
    if field.label == Field.LABEL_REPEATED:
        return "repeated"
    if field.label == Field.LABEL_REQUIRED:
        return "required"
    return "optional" if field.proto3_optional else "singular"


def oneof_of(message, field: Field) -> str:
    if not field.HasField("oneof_index") or field.proto3_optional:
        return "no oneof"
    return "oneof " + message.oneof_decl[field.oneof_index].name


class Comparison:
    """Collects the breaks between two FileDescriptorSets, each as "element: what"."""

    def __init__(self, old: FileDescriptorSet, new: FileDescriptorSet):
        self.breaks: list[str] = []
        self.homes = {}  # element of `new` -> file, for what has moved
        for file in new.file:
            for element in [*file.message_type, *file.enum_type, *file.service]:
                self.homes[f"{file.package}.{element.name}"] = file.name
        now = {file.name: file for file in new.file}
        for file in old.file:
            if file.name not in now:
                self.add(file.name, "was removed")
            else:
                self.file(file, now[file.name])

    def add(self, element: str, what: str) -> None:
        self.breaks.append(f"{element}: {what}")

    def same(self, element: str, what: str, old, new) -> None:
        if old != new:
            self.add(element, f"{what} was {old}, is {new}")

    def each(self, scope: str, old, new, compare) -> None:
        """Compares elements of one kind by name."""
        now = {element.name: element for element in new}
        for element in old:
            full = f"{scope}.{element.name}"
            if element.name in now:
                compare(full, element, now[element.name])
            else:
                self.add(full, f"moved to {self.homes[full]}" if full in self.homes else "was removed")

    def file(self, old, new) -> None:
        self.same(old.name, "package", old.package, new.package)
        self.same(old.name, "syntax", old.syntax or "proto2", new.syntax or "proto2")
        for option in FILE_OPTIONS:
            self.same(old.name, f"option {option}", getattr(old.options, option), getattr(new.options, option))
        self.each(old.package, old.message_type, new.message_type, self.message)
        self.each(old.package, old.enum_type, new.enum_type, self.enum)
        self.each(old.package, old.service, new.service, self.service)

    def message(self, name: str, old, new) -> None:
        self.same(name, "map entry", old.options.map_entry, new.options.map_entry)
        by_number = {field.number: field for field in new.field}
        by_name = {field.name: field for field in new.field}
        for field in old.field:
            element = f"{name}.{field.name}"
            if field.number in by_number:
                self.field(element, old, field, new, by_number[field.number])
            elif field.name in by_name:
                self.same(element, "number", field.number, by_name[field.name].number)
            else:
                self.add(element, f"was removed (number {field.number}); mark it deprecated instead")
        self.reserved(name, old, new, inclusive=False)
        self.each(name, old.nested_type, new.nested_type, self.message)
        self.each(name, old.enum_type, new.enum_type, self.enum)

    def field(self, element: str, old_message, old: Field, new_message, new: Field) -> None:
        self.same(element, f"name of number {old.number}", old.name, new.name)
        self.same(element, "JSON name", old.json_name, new.json_name)
        self.same(element, "type", field_type(old), field_type(new))
        self.same(element, "cardinality", field_label(old), field_label(new))
        self.same(element, "place", oneof_of(old_message, old), oneof_of(new_message, new))
        self.same(element, "default", old.default_value, new.default_value)
        self.same(element, "jstype", old.options.jstype, new.options.jstype)

    def enum(self, name: str, old, new) -> None:
        now = {value.name: value.number for value in new.value}
        names = {}
        for value in new.value:
            names.setdefault(value.number, value.name)
        for value in old.value:
            element = f"{name}.{value.name}"
            if value.name in now:
                self.same(element, "number", value.number, now[value.name])
            elif value.number in names:
                self.same(element, f"name of number {value.number}", value.name, names[value.number])
            else:
                self.add(element, f"was removed (number {value.number}); mark it deprecated instead")
        self.reserved(name, old, new, inclusive=True)

    def reserved(self, name: str, old, new, inclusive: bool) -> None:
        """What was reserved stays so."""
        for name_then in old.reserved_name:
            if name_then not in new.reserved_name:
                self.add(name, f"name {name_then!r} is no longer reserved")
        for then in old.reserved_range:
            at, end = then.start, then.end + inclusive
            for now in sorted(new.reserved_range, key=lambda now: now.start):
                if now.start <= at:
                    at = max(at, min(end, now.end + inclusive))
            if at < end:
                self.add(name, f"number {at} is no longer reserved")

    def service(self, name: str, old, new) -> None:
        self.each(name, old.method, new.method, self.rpc)

    def rpc(self, name: str, old, new) -> None:
        self.same(name, "request", old.input_type.lstrip("."), new.input_type.lstrip("."))
        self.same(name, "response", old.output_type.lstrip("."), new.output_type.lstrip("."))
        self.same(name, "streaming of requests", old.client_streaming, new.client_streaming)
        self.same(name, "streaming of responses", old.server_streaming, new.server_streaming)
        self.same(name, "idempotency level", old.options.idempotency_level, new.options.idempotency_level)


def breaks(old: FileDescriptorSet, new: FileDescriptorSet) -> list[str]:
    return Comparison(old, new).breaks


def release(current: FileDescriptorSet, previous: Path | None) -> None:
    version = re.search(r"^project\(\w+ VERSION ([0-9.]+)", (HERE.parent / "CMakeLists.txt").read_text(), re.M)[1]
    path = HERE / "released" / f"{version}.binpb"
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(current.SerializeToString(deterministic=True))
    if previous is not None and previous != path:
        previous.unlink()
    print(f"{path.relative_to(HERE.parent)}: the API as of now")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--protoc", default="protoc")
    parser.add_argument("--release", action="store_true", help="make this state the last one, where it breaks nothing")
    args = parser.parse_args()
    current, previous = compiled(HERE, args.protoc), last_release(HERE / "released")
    if previous is None and not args.release:
        print("proto/released holds no release", file=sys.stderr)
        return 2
    found = breaks(FileDescriptorSet.FromString(previous.read_bytes()), current) if previous else []
    for line in found:
        print(f"break of {previous.stem}: {line}", file=sys.stderr)
    if found:
        return 1
    if args.release:
        release(current, previous)
    else:
        print(f"nothing breaks {previous.stem}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
