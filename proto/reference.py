#!/usr/bin/python3
"""Writes the reference of the API, proto/API.md, from the comments of proto/tp/v1/*.proto.

    proto/reference.py            # writes it; exit status 1, and nothing is written, where an element has no comment
    proto/reference.py --check    # exit status 1 where API.md is not what would be written

Needs protoc and Debian's python3-protobuf. Tested in tests/proto.
"""
import argparse
import re
import sys
from pathlib import Path

sys.dont_write_bytecode = True
from compatible import HERE, Field, compiled  # noqa: E402

# Files in the order in which a reader wants them; others follow by name.
ORDER = ("coordinator", "dtensor", "submission", "model", "plan", "placement", "mesh", "tensor", "config", "membership",
         "worker", "program")
INTRO = """# The API: `tp.v1`

Made by `proto/reference.py` from the comments of [`tp/v1/*.proto`](tp/v1); edit those. What stays the same from release
to release: [README.md](README.md).

Clients talk to [CoordinatorService](#coordinatorservice); the other services are spoken between workers and the
coordinator. What may be large travels as a stream: a header, then pieces of at most 1 MiB, each a [Chunk](#chunk)
with a checksum. Units stand in names, as in `size_bytes` and `timeout_ms`.
"""


def slug(heading: str) -> str:
    """The anchor that GitHub gives a heading."""
    return re.sub(r"[^a-z0-9_ -]", "", heading.lower()).replace(" ", "-")


def link(name: str) -> str:
    return f"[{name}](#{slug(name)})"


def blocks(comment: str) -> list[str]:
    """Paragraphs and code blocks (lines indented by 2 or more) of a comment, as Markdown."""
    result, code = [], None
    for line in [*comment.rstrip().splitlines(), ""]:
        line = line.removeprefix(" ")
        if not line.startswith("  "):
            if code:
                result += ["```\n" + "\n".join(code) + "\n```", ""]
            code = None
            if not result or not line.strip():
                result.append("")
            result[-1] = f"{result[-1]} {line.strip()}".strip()
        else:
            code = [*(code or []), line[2:]]
    return [part if part.startswith("```") else markdown(part) for part in result if part]


def markdown(comment: str) -> str:
    """A paragraph as Markdown that shows it as it stands; `code` stays code."""
    def plain(text: str) -> str:
        text = re.sub(r"([\\*<|~])", r"\\\1", text)
        text = re.sub(r"(?<!\w)_|_(?!\w)", r"\\_", text)
        return text.replace("](", "]\\(")
    parts = re.split(r"(`[^`]*`)", comment)
    return "".join(part.replace("|", "\\|") if part.startswith("`") else plain(part) for part in parts)


class Element:
    """A part of a file with its comment and its place in the descriptor."""

    def __init__(self, proto, name: str, comment: str):
        self.proto, self.name, self.comment = proto, name, comment


class File:
    """Messages, enums and services of a file, nested ones after their parents, with their comments."""

    def __init__(self, proto):
        self.proto, self.name = proto, proto.name
        self.comments = {}
        for location in proto.source_code_info.location:
            self.comments[tuple(location.path)] = location.leading_comments or location.trailing_comments
        self.comment = self.comments.get((12,), "")  # above `syntax`
        self.messages, self.enums, self.services = [], [], []
        for i, message in enumerate(proto.message_type):
            self.add_message(message, message.name, (4, i))
        self.add_enums(proto.enum_type, "", (5,))
        for i, service in enumerate(proto.service):
            element = self.element(service, service.name, (6, i))
            element.rpcs = [self.element(rpc, f"{service.name}.{rpc.name}", (6, i, 2, j))
                            for j, rpc in enumerate(service.method)]
            self.services.append(element)

    def element(self, proto, name: str, path: tuple) -> Element:
        return Element(proto, name, self.comments.get(path, ""))

    def add_message(self, proto, name: str, path: tuple) -> None:
        message = self.element(proto, name, path)
        message.fields = [self.element(field, field.name, (*path, 2, i)) for i, field in enumerate(proto.field)]
        message.oneofs = [self.element(oneof, oneof.name, (*path, 8, i)) for i, oneof in enumerate(proto.oneof_decl)]
        message.entries = {f".{self.proto.package}.{name}.{nested.name}": nested
                           for nested in proto.nested_type if nested.options.map_entry}
        self.messages.append(message)
        for i, nested in enumerate(proto.nested_type):
            if not nested.options.map_entry:
                self.add_message(nested, f"{name}.{nested.name}", (*path, 3, i))
        self.add_enums(proto.enum_type, name + ".", (*path, 4))

    def add_enums(self, enums, scope: str, path: tuple) -> None:
        for i, proto in enumerate(enums):
            enum = self.element(proto, scope + proto.name, (*path, i))
            enum.values = [self.element(value, value.name, (*path, i, 2, j)) for j, value in enumerate(proto.value)]
            self.enums.append(enum)

    def uncommented(self):
        if not self.comment:
            yield self.name
        for element in [*self.messages, *self.enums, *self.services]:
            parts = [f"{element.name}.{part.name}" for kind in ("fields", "values")
                     for part in getattr(element, kind, []) if not part.comment]
            parts += [rpc.name for rpc in getattr(element, "rpcs", []) if not rpc.comment]
            parts += [f"{element.name}.{oneof.name}" for i, oneof in enumerate(getattr(element, "oneofs", []))
                      if not oneof.comment and not synthetic(element, i)]
            yield from parts if element.comment else [element.name, *parts]


def synthetic(message: Element, oneof: int) -> bool:
    """Whether it is the one that stands for `optional`."""
    return any(field.proto.proto3_optional and field.proto.oneof_index == oneof for field in message.fields)


def note(element: Element) -> str:
    deprecated = getattr(element.proto.options, "deprecated", False)
    return "\n\n".join((["**Deprecated.**"] if deprecated else []) + blocks(element.comment))


def cell(text: str) -> str:
    """A note as a cell of a table."""
    def lines(code: re.Match) -> str:
        return "<br>".join(f"`{line}`" for line in code[1].splitlines())
    text = re.sub(r"```\n(.*?)\n```", lines, text, flags=re.S)
    return text.replace("\n\n", "<br>")


class Reference:
    def __init__(self, files: list[File]):
        self.files, self.lines, self.uses = files, [], {}
        self.package = files[0].proto.package
        for file in files:
            for service in file.services:
                for rpc in service.rpcs:
                    for type_name in (rpc.proto.input_type, rpc.proto.output_type):
                        self.use(type_name, rpc.name)
            for message in file.messages:
                for field in message.fields:
                    entry = message.entries.get(field.proto.type_name)
                    self.use(entry.field[1].type_name if entry else field.proto.type_name, message.name)

    def use(self, type_name: str, user: str) -> None:
        users = self.uses.setdefault(self.short(type_name), [])
        if type_name and user not in users:
            users.append(user)

    def short(self, type_name: str) -> str:
        return type_name.removeprefix(f".{self.package}.")

    def write(self, *lines: str) -> None:
        self.lines += lines

    def text(self) -> str:
        self.write(INTRO, "| File | Holds |", "|---|---|")
        for file in self.files:
            first = re.split(r"(?<=\.) ", blocks(file.comment)[0])[0]
            self.write(f"| [{file.name}](#{slug(file.name)}) | {first} |")
        for file in self.files:
            for service in file.services:
                self.service(service)
        for file in self.files:
            self.write("", f"## {file.name}", "", "\n\n".join(blocks(file.comment)))
            for message in file.messages:
                self.message(message)
                for enum in file.enums:
                    if enum.name.rpartition(".")[0] == message.name:
                        self.enum(enum)
            for enum in file.enums:
                if "." not in enum.name:
                    self.enum(enum)
        return "\n".join(self.lines) + "\n"

    def service(self, service: Element) -> None:
        self.write("", f"## {service.name}", "", note(service), "", "| RPC | Request | Response |", "|---|---|---|")
        for rpc in service.rpcs:
            request, response = self.streams(rpc)
            self.write(f"| [{rpc.proto.name}](#{slug(rpc.name)}) | {request} | {response} |")
        for rpc in service.rpcs:
            request, response = self.streams(rpc)
            self.write("", f"### {rpc.name}", "", f"{request} → {response}", "", note(rpc))

    def streams(self, rpc: Element) -> tuple[str, str]:
        return (("stream of " if rpc.proto.client_streaming else "") + link(self.short(rpc.proto.input_type)),
                ("stream of " if rpc.proto.server_streaming else "") + link(self.short(rpc.proto.output_type)))

    def used_by(self, element: Element) -> None:
        users = [user for user in self.uses.get(element.name, []) if user != element.name]
        if users:
            self.write("", "Used by: " + ", ".join(link(user) for user in users))

    def reserved(self, element: Element, inclusive: bool) -> None:
        numbers = [(r.start, r.end - (not inclusive)) for r in element.proto.reserved_range]
        words = [str(first) if first == last else f"{first} to {last}" for first, last in numbers]
        words += [f"`{name}`" for name in element.proto.reserved_name]
        if words:
            self.write("", "Reserved: " + ", ".join(words))

    def message(self, message: Element) -> None:
        self.write("", f"### {message.name}", "", note(message))
        if message.fields:
            self.write("", "| Number | Field | Type | |", "|---|---|---|---|")
        group = None
        for field in message.fields:
            real = field.proto.HasField("oneof_index") and not field.proto.proto3_optional
            oneof = message.oneofs[field.proto.oneof_index] if real else None
            if oneof is not None and oneof is not group:
                self.write(f"| | oneof `{oneof.name}` | | {cell(note(oneof))} |")
            group = oneof
            name = f"{oneof.name}: `{field.name}`" if oneof else f"`{field.name}`"
            self.write(f"| {field.proto.number} | {name} | {self.type(message, field.proto)} | {cell(note(field))} |")
        self.reserved(message, inclusive=False)
        self.used_by(message)

    def type(self, message: Element, field: Field) -> str:
        entry = message.entries.get(field.type_name)
        if entry:
            return f"map of {self.type(message, entry.field[0])} to {self.type(message, entry.field[1])}"
        label = "repeated " if field.label == Field.LABEL_REPEATED else "optional " if field.proto3_optional else ""
        if field.type_name:
            return label + link(self.short(field.type_name))
        return label + Field.Type.Name(field.type).removeprefix("TYPE_").lower()

    def enum(self, enum: Element) -> None:
        self.write("", f"### {enum.name}", "", note(enum), "", "| Number | Value | |", "|---|---|---|")
        for value in enum.values:
            self.write(f"| {value.proto.number} | `{value.name}` | {cell(note(value))} |")
        self.reserved(enum, inclusive=True)
        self.used_by(enum)


def read(root: Path, protoc: str) -> list[File]:
    def place(file: File):
        stem = Path(file.name).stem
        return (ORDER.index(stem) if stem in ORDER else len(ORDER), stem)
    return sorted((File(proto) for proto in compiled(root, protoc, "--include_source_info").file), key=place)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--protoc", default="protoc")
    parser.add_argument("--check", action="store_true", help="write nothing")
    args = parser.parse_args()
    files, path = read(HERE, args.protoc), HERE / "API.md"
    missing = [name for file in files for name in file.uncommented()]
    if missing:
        print("no comment: " + ", ".join(missing), file=sys.stderr)
        return 1
    text = Reference(files).text()
    if not args.check:
        path.write_text(text)
    elif not path.exists() or path.read_text() != text:
        print(f"{path.name} is not what the .proto files say: run proto/reference.py", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
