"""Tests proto/compatible.py: every kind of break is found in every element of the API, no legal addition is one."""
import copy
import shutil
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
sys.dont_write_bytecode = True
sys.path.insert(0, str(ROOT / "proto"))
import compatible  # noqa: E402
from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field  # noqa: E402

PROTOC = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "protoc"
API = compatible.compiled(ROOT / "proto", PROTOC)

BASE = """syntax = "proto3";
package t;
message A {
  reserved 7, 10 to 20;
  reserved "gone";
  int32 a = 1;
  optional int32 b = 2;
  repeated int64 c = 3;
  B d = 4;
  oneof kind {
    string e = 5;
    bytes f = 6;
  }
  map<string, B> g = 8;
  message Inner { bool x = 1; }
  enum Level { LEVEL_UNSPECIFIED = 0; LEVEL_ONE = 1; reserved 5 to 8; reserved "LEVEL_OLD"; }
  Level h = 9;
}
message B {}
enum E { E_UNSPECIFIED = 0; E_ONE = 1; }
service S {
  rpc One(A) returns (B);
  rpc Two(stream A) returns (stream B);
}
"""

# What is replaced in BASE, by what, and the break (None: a legal change).
CHANGES = {
    "field removed": ("  int32 a = 1;\n", "", "t.A.a: was removed (number 1); mark it deprecated instead"),
    "field reserved": ("  int32 a = 1;\n", '  reserved 1; reserved "a";\n', "t.A.a: was removed (number 1)"),
    "field renumbered": ("int32 a = 1", "int32 a = 30", "t.A.a: number was 1, is 30"),
    "field renamed": ("int32 a = 1", "int32 z = 1", "t.A.a: name of number 1 was a, is z"),
    "JSON name": ("int32 a = 1", 'int32 a = 1 [json_name = "q"]', "t.A.a: JSON name was a, is q"),
    "type of the same wire format": ("int32 a = 1", "uint32 a = 1", "t.A.a: type was int32, is uint32"),
    "another message": ("B d = 4", "Inner d = 4", "t.A.d: type was t.B, is t.A.Inner"),
    "another enum": ("Level h = 9", "E h = 9", "t.A.h: type was t.A.Level, is t.E"),
    "value of a map": ("map<string, B>", "map<string, Inner>", "t.A.GEntry.value: type was t.B, is t.A.Inner"),
    "map to repeated": ("map<string, B> g", "repeated B g", "t.A.g: type was t.A.GEntry, is t.B"),
    "becomes optional": ("  int32 a", "  optional int32 a", "t.A.a: cardinality was singular, is optional"),
    "becomes repeated": ("  int32 a", "  repeated int32 a", "t.A.a: cardinality was singular, is repeated"),
    "loses optional": ("optional int32 b", "int32 b", "t.A.b: cardinality was optional, is singular"),
    "loses repeated": ("repeated int64 c", "int64 c", "t.A.c: cardinality was repeated, is singular"),
    "leaves its oneof": ("    string e = 5;\n", "", "t.A.e: was removed"),
    "out of the oneof": ("    bytes f = 6;\n  }", "  }\n  bytes f = 6;", "t.A.f: place was oneof kind, is no oneof"),
    "into a oneof": ("  B d = 4;\n", "  oneof other { B d = 4; }\n", "t.A.d: place was no oneof, is oneof other"),
    "oneof renamed": ("oneof kind", "oneof sort", "t.A.e: place was oneof kind, is oneof sort"),
    "reserved number used": ("reserved 7, ", "int32 n = 7; reserved ", "t.A: number 7 is no longer reserved"),
    "reserved range cut": ("10 to 20", "10 to 14, 16 to 20", "t.A: number 15 is no longer reserved"),
    "reserved range shorter": ("10 to 20", "10 to 19", "t.A: number 20 is no longer reserved"),
    "reserved name used": ('  reserved "gone";', "  int32 gone = 40;", "t.A: name 'gone' is no longer reserved"),
    "reserved value": ("reserved 5 to 8", "reserved 5 to 7", "t.A.Level: number 8 is no longer reserved"),
    "reserved value name": (' reserved "LEVEL_OLD";', "", "t.A.Level: name 'LEVEL_OLD' is no longer reserved"),
    "message removed": ("message Inner { bool x = 1; }", "", "t.A.Inner: was removed"),
    "message renamed": ("B", "C", "t.B: was removed"),
    "enum removed": ("enum E { E_UNSPECIFIED = 0; E_ONE = 1; }\n", "", "t.E: was removed"),
    "value removed": (" E_ONE = 1;", "", "t.E.E_ONE: was removed (number 1); mark it deprecated instead"),
    "value renamed": ("E_ONE = 1; }\ns", "E_UNO = 1; }\ns", "t.E.E_ONE: name of number 1 was E_ONE, is E_UNO"),
    "value renumbered": ("E_ONE = 1; }\ns", "E_ONE = 2; }\ns", "t.E.E_ONE: number was 1, is 2"),
    "service removed": ("service S", "service T", "t.S: was removed"),
    "RPC removed": ("  rpc One(A) returns (B);\n", "", "t.S.One: was removed"),
    "RPC renamed": ("rpc One", "rpc Uno", "t.S.One: was removed"),
    "another request": ("One(A)", "One(B)", "t.S.One: request was t.A, is t.B"),
    "another response": ("(A) returns (B)", "(A) returns (A)", "t.S.One: response was t.B, is t.A"),
    "requests streamed": ("One(A)", "One(stream A)", "t.S.One: streaming of requests was False, is True"),
    "responses streamed": ("(A) returns (B)", "(A) returns (stream B)", "t.S.One: streaming of responses was False"),
    "requests no longer streamed": ("Two(stream A)", "Two(A)", "t.S.Two: streaming of requests was True, is False"),
    "responses no longer streamed": ("(stream B)", "(B)", "t.S.Two: streaming of responses was True, is False"),
    "idempotency": ("One(A) returns (B);", "One(A) returns (B) { option idempotency_level = IDEMPOTENT; }",
                    "t.S.One: idempotency level was 0, is 2"),
    "package": ("package t", "package u", "t.proto: package was t, is u"),
    "generated code": ("package t;", 'package t; option go_package = "x/t";', "t.proto: option go_package was"),
    "field added": ("message B {}", "message B { int32 a = 1; }", None),
    "fields added": ("message B {}", "message B { optional B a = 1; repeated B b = 2; map<int32, B> c = 3; }", None),
    "field of a oneof added": ("bytes f = 6;", "bytes f = 6; bool i = 21;", None),
    "oneof added": ("message B {}", "message B { oneof kind { int32 a = 1; } }", None),
    "message of the same name in another scope": ("message B {}", "message B {}\nmessage Inner { bool x = 1; }", None),
    "message added": ("message B {}", "message B { message N {} }\nmessage C {}", None),
    "enum added": ("enum E", "enum F { F_UNSPECIFIED = 0; }\nenum E", None),
    "value added": ("E_ONE = 1; }\ns", "E_ONE = 1; E_TWO = 2; }\ns", None),
    "alias added": ("enum E { E_UNSPECIFIED = 0; E_ONE = 1;",
                    "enum E { option allow_alias = true; E_UNSPECIFIED = 0; E_ONE = 1; E_UNO = 1;", None),
    "service added": ("service S", "service T { rpc One(A) returns (B); }\nservice S", None),
    "RPC added": ("service S {", "service S { rpc Three(B) returns (A);", None),
    "deprecated field": ("int32 a = 1", "int32 a = 1 [deprecated = true]", None),
    "deprecated RPC": ("One(A) returns (B);", "One(A) returns (B) { option deprecated = true; }", None),
    "deprecated value": ("E_ONE = 1; }\ns", "E_ONE = 1 [deprecated = true]; }\ns", None),
    "more reserved": ("reserved 7,", 'reserved 7, 50; reserved "never"; reserved', None),
    "range in two parts": ("10 to 20", "10 to 15, 16 to 20", None),
    "range within a larger one": ("10 to 20", "10 to 25", None),
    "order of fields": ("  int32 a = 1;\n  optional int32 b = 2;\n", "  optional int32 b = 2;\n  int32 a = 1;\n", None),
    "comment": ("message B {}", "// A B.\nmessage B {}", None),
}


def compile_text(text: str, name: str = "t.proto", **others: str):
    with tempfile.TemporaryDirectory() as folder:
        for file, content in {name: text, **{f"{key}.proto": value for key, value in others.items()}}.items():
            (Path(folder) / file).write_text(content)
        return compatible.compiled(Path(folder), PROTOC)


def messages(files):
    """(full name, message) of all, nested ones and map entries too."""
    def walk(scope, message):
        name = f"{scope}.{message.name}"
        yield name, message
        for nested in message.nested_type:
            yield from walk(name, nested)
    for file in files.file:
        for message in file.message_type:
            yield from walk(file.package, message)


def enums(files):
    for file in files.file:
        yield from ((f"{file.package}.{enum.name}", enum) for enum in file.enum_type)
    for name, message in messages(files):
        yield from ((f"{name}.{enum.name}", enum) for enum in message.enum_type)


def methods(files):
    return [(f"{file.package}.{service.name}.{rpc.name}", rpc)
            for file in files.file for service in file.service for rpc in service.method]


class Changes(unittest.TestCase):
    """One change at a time, of a small file."""

    def test_each(self):
        base = compile_text(BASE)
        for what, (old, new, expected) in CHANGES.items():
            with self.subTest(what):
                self.assertIn(old, BASE)
                count = -1 if what == "message renamed" else 1
                found = compatible.breaks(base, compile_text(BASE.replace(old, new, count)))
                if expected is None:
                    self.assertEqual(found, [])
                else:
                    self.assertTrue(any(line.startswith(expected) for line in found), found)

    def test_syntax(self):
        old = compile_text('syntax = "proto3";\npackage t;\nmessage A { repeated int32 a = 1; }')
        new = compile_text('syntax = "proto2";\npackage t;\nmessage A { repeated int32 a = 1; }')
        self.assertEqual(compatible.breaks(old, new), ["t.proto: syntax was proto3, is proto2"])

    def test_required_and_default(self):
        text = 'syntax = "proto2"; package t; message A { optional int32 a = 1; optional int32 b = 2; }'
        old = compile_text(text)
        new = compile_text(text.replace("optional int32 a", "required int32 a").replace("b = 2", "b = 2 [default = 3]"))
        self.assertEqual(compatible.breaks(old, new),
                         ["t.A.a: cardinality was singular, is required", "t.A.b: default was , is 3"])

    def test_files(self):
        a, b = 'syntax = "proto3";\npackage t;\nmessage A {}\n', 'syntax = "proto3";\npackage t;\nmessage B {}\n'
        both = compile_text(a, u=b)
        self.assertEqual(compatible.breaks(compile_text(a), both), [])
        self.assertEqual(compatible.breaks(both, compile_text(a)), ["u.proto: was removed"])
        moved = compile_text(a + "message B {}\n", u='syntax = "proto3";\npackage t;\n')
        self.assertEqual(compatible.breaks(both, moved), ["t.B: moved to t.proto"])


class WholeApi(unittest.TestCase):
    """Each kind of break in every element of tp.v1 at once: each element is named."""

    def found(self, change) -> dict[str, list[str]]:
        changed = copy.deepcopy(API)
        change(changed)
        result = {}
        for line in compatible.breaks(API, changed):
            element, _, what = line.partition(": ")
            result.setdefault(element, []).append(what)
        return result

    def fields(self):
        return {f"{name}.{field.name}" for name, message in messages(API) for field in message.field}

    def each_field(self, change):
        return self.found(lambda api: [change(field) for _, message in messages(api) for field in message.field])

    def test_itself(self):
        self.assertEqual(compatible.breaks(API, copy.deepcopy(API)), [])
        self.assertGreater(len(self.fields()), 500)

    def test_fields_removed(self):
        self.assertEqual(set(self.found(lambda api: [m.ClearField("field") for _, m in messages(api)])), self.fields())

    def test_fields_renumbered(self):
        def change(field):
            field.number += 1000
        self.assertEqual(set(self.each_field(change)), self.fields())

    def test_fields_renamed(self):
        def change(field):
            field.name += "_x"
        self.assertEqual(set(self.each_field(change)), self.fields())

    def test_fields_retyped(self):
        def change(field):
            field.type = Field.TYPE_SINT64
            field.ClearField("type_name")
        self.assertEqual(set(self.each_field(change)), self.fields())

    def test_labels(self):
        def change(field):
            repeated = field.label == Field.LABEL_REPEATED
            field.label = Field.LABEL_OPTIONAL if repeated else Field.LABEL_REPEATED
        self.assertEqual(set(self.each_field(change)), self.fields())

    def test_oneofs_renamed(self):
        expected = {f"{name}.{field.name}" for name, message in messages(API) for field in message.field
                    if field.HasField("oneof_index") and not field.proto3_optional}
        self.assertEqual(expected, set(self.found(
            lambda api: [setattr(o, "name", o.name + "x") for _, m in messages(api) for o in m.oneof_decl])))

    def test_values(self):
        expected = {f"{name}.{value.name}" for name, enum in enums(API) for value in enum.value}
        for attribute, value in (("name", lambda v: v.name + "_X"), ("number", lambda v: v.number + 100)):
            self.assertEqual(expected, set(self.found(
                lambda api: [setattr(v, attribute, value(v)) for _, e in enums(api) for v in e.value])))
        self.assertEqual(expected, set(self.found(lambda api: [e.ClearField("value") for _, e in enums(api)])))

    def test_messages_and_enums_removed(self):
        for kind in ("message_type", "enum_type", "service"):
            expected = {f"{file.package}.{element.name}" for file in API.file for element in getattr(file, kind)}
            self.assertEqual(expected, set(self.found(lambda api: [file.ClearField(kind) for file in api.file])))

    def test_rpcs(self):
        expected = {name for name, _ in methods(API)}
        for attribute, value in (("input_type", lambda r: ".tp.v1.Mesh"), ("output_type", lambda r: ".tp.v1.Mesh"),
                                 ("client_streaming", lambda r: not r.client_streaming),
                                 ("server_streaming", lambda r: not r.server_streaming)):
            self.assertEqual(expected, set(self.found(
                lambda api: [setattr(r, attribute, value(r)) for _, r in methods(api)])))

    def test_reserved_dropped(self):
        expected = {name for name, element in [*messages(API), *enums(API)] if element.reserved_range}
        self.assertIn("tp.v1.PrepareModuleInputOutput", expected)
        self.assertEqual(expected, set(self.found(
            lambda api: [e.ClearField("reserved_range") for _, e in [*messages(api), *enums(api)]])))

    def test_additions(self):
        def change(api):
            for _, message in list(messages(api)):
                message.field.add(name="added", number=9000, type=Field.TYPE_INT64, label=Field.LABEL_OPTIONAL)
                message.nested_type.add(name="Added")
                message.reserved_range.add(start=9100, end=9101)
                message.options.deprecated = True
            for _, enum in enums(api):
                enum.value.add(name="ADDED", number=9000)
            for file in api.file:
                file.message_type.add(name="Added")
                for service in file.service:
                    service.method.add(name="Added", input_type=".tp.v1.Mesh", output_type=".tp.v1.Mesh")
            api.file.add(name="tp/v1/added.proto", package="tp.v1")
        self.assertEqual(self.found(change), {})


class Command(unittest.TestCase):
    """The program, on copies of the API."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.root = Path(folder.name)
        shutil.copytree(ROOT / "proto", self.root / "proto")

    def run_it(self, *args: str):
        command = [sys.executable, self.root / "proto/compatible.py", "--protoc", PROTOC, *args]
        return subprocess.run(command, capture_output=True, text=True)

    def rewrite(self, file: str, old: str, new: str):
        text = (self.root / file).read_text()
        self.assertIn(old, text)
        (self.root / file).write_text(text.replace(old, new))

    def test_break(self):
        self.rewrite("proto/tp/v1/mesh.proto", "int32 size = 2", "int64 size = 3")
        run = self.run_it()
        self.assertEqual(run.returncode, 1)
        self.assertRegex(run.stderr, r"^break of [0-9.]+: tp.v1.MeshAxis.size: number was 2, is 3\n$")
        self.assertEqual(self.run_it("--release").returncode, 1)

    def test_release(self):
        (self.root / "CMakeLists.txt").write_text("project(tensorplane VERSION 0.10.1 LANGUAGES CXX)\n")
        self.rewrite("proto/tp/v1/mesh.proto", "int32 size = 2;", "int32 size = 2;\n  bool added = 3;")
        self.assertEqual(self.run_it("--release").returncode, 0)
        self.assertEqual([path.name for path in (self.root / "proto/released").iterdir()], ["0.10.1.binpb"])
        self.rewrite("proto/tp/v1/mesh.proto", "bool added = 3;", "")
        self.assertIn("break of 0.10.1: tp.v1.MeshAxis.added: was removed", self.run_it().stderr)

    def test_no_release(self):
        shutil.rmtree(self.root / "proto/released")
        self.assertEqual(self.run_it().returncode, 2)

    def test_last_release_is_by_number(self):
        for name in ("0.9.0", "0.10.0", "0.2.11"):
            (self.root / f"{name}.binpb").touch()
        self.assertEqual(compatible.last_release(self.root).name, "0.10.0.binpb")


if __name__ == "__main__":
    unittest.main()
