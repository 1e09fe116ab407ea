"""Tests proto/reference.py, and that proto/API.md is what it writes: whole, in step with the API, its links live."""
import re
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
import reference  # noqa: E402

PROTOC = sys.argv.pop(1) if len(sys.argv) > 1 and not sys.argv[1].startswith("-") else "protoc"

SMALL = '''// What a file holds. More of it.
//
// Example:
//   a: "b|c"
//     d: 1
// The end.
syntax = "proto3";
package t;
// --- Detached.

// A thing, with `co|de` and a | b, * and _x_ of snake_case.
message A {
  reserved 4, 7 to 9;
  reserved "old";
  // Inner.
  message B {
    // Deeper.
    enum C {
      // Not said.
      C_UNSPECIFIED = 0;
      // One.
      // Two.
      C_ONE = 1;
    }
    // Which.
    C c = 1;
  }
  // A map.
  map<int32, B> bs = 1;
  // Either.
  oneof kind {
    // Text.
    string text = 2;
    // Bytes.
    bytes data = 3;
  }
  // May be left out.
  optional B.C c = 5;
  string after = 6 [deprecated = true];  // Old.
  // Itself.
  repeated A as = 10;
}
// Does things.
service S {
  // Both ways. ABORTED (never).
  rpc Do(stream A) returns (stream A.B);
}
'''
EXPECTED = r'''| File | Holds |
|---|---|
| [t.proto](#tproto) | What a file holds. |

## S

Does things.

| RPC | Request | Response |
|---|---|---|
| [Do](#sdo) | stream of [A](#a) | stream of [A.B](#ab) |

### S.Do

stream of [A](#a) → stream of [A.B](#ab)

Both ways. ABORTED (never).

## t.proto

What a file holds. More of it.

Example:

```
a: "b|c"
  d: 1
```

The end.

### A

A thing, with `co\|de` and a \| b, \* and \_x\_ of snake_case.

| Number | Field | Type | |
|---|---|---|---|
| 1 | `bs` | map of int32 to [A.B](#ab) | A map. |
| | oneof `kind` | | Either. |
| 2 | kind: `text` | string | Text. |
| 3 | kind: `data` | bytes | Bytes. |
| 5 | `c` | optional [A.B.C](#abc) | May be left out. |
| 6 | `after` | string | **Deprecated.**<br>Old. |
| 10 | `as` | repeated [A](#a) | Itself. |

Reserved: 4, 7 to 9, `old`

Used by: [S.Do](#sdo)

### A.B

Inner.

| Number | Field | Type | |
|---|---|---|---|
| 1 | `c` | [A.B.C](#abc) | Which. |

Used by: [S.Do](#sdo), [A](#a)

### A.B.C

Deeper.

| Number | Value | |
|---|---|---|
| 0 | `C_UNSPECIFIED` | Not said. |
| 1 | `C_ONE` | One. Two. |

Used by: [A](#a), [A.B](#ab)
'''


class Small(unittest.TestCase):
    def files(self, text: str):
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "t.proto").write_text(text)
            return reference.read(Path(folder), PROTOC)

    def test_text(self):
        text = reference.Reference(self.files(SMALL)).text()
        self.assertEqual(text.removeprefix(reference.INTRO + "\n"), EXPECTED)

    def test_uncommented(self):
        def uncommented(text):
            return [name for file in self.files(text) for name in file.uncommented()]
        self.assertEqual(uncommented(SMALL), [])
        bare = "\n".join(line.partition("//")[0] for line in SMALL.splitlines())
        self.assertEqual(uncommented(bare), [
            "t.proto", "A", "A.bs", "A.text", "A.data", "A.c", "A.after", "A.as", "A.kind", "A.B", "A.B.c",
            "A.B.C", "A.B.C.C_UNSPECIFIED", "A.B.C.C_ONE", "S", "S.Do"])


class Api(unittest.TestCase):
    """proto/API.md."""

    @classmethod
    def setUpClass(cls):
        cls.text = (ROOT / "proto/API.md").read_text()
        cls.headings = re.findall(r"^#+ (.*)$", cls.text, re.M)
        cls.sections = dict(zip(cls.headings, re.split(r"^#+ .*$", cls.text, flags=re.M)[1:]))
        cls.api = compatible.compiled(ROOT / "proto", PROTOC)

    def run_it(self, root: Path):
        command = [sys.executable, root / "proto/reference.py", "--check", "--protoc", PROTOC]
        run = subprocess.run(command, capture_output=True, text=True)
        return run.returncode, run.stderr

    def test_in_step(self):
        self.assertEqual(self.run_it(ROOT), (0, ""))

    def test_out_of_step(self):
        with tempfile.TemporaryDirectory() as folder:
            shutil.copytree(ROOT / "proto", Path(folder) / "proto")
            path = Path(folder) / "proto/tp/v1/mesh.proto"
            text = path.read_text()
            path.write_text(text.replace("// Meshes of ranks.", "// Grids of ranks."))
            self.assertEqual(self.run_it(Path(folder)),
                             (1, "API.md is not what the .proto files say: run proto/reference.py\n"))
            path.write_text(text + "\nmessage Bare { int32 x = 1; }\n")
            self.assertEqual(self.run_it(Path(folder)), (1, "no comment: Bare, Bare.x\n"))

    def test_links(self):
        anchors = [re.sub(r"[^\w -]", "", heading.lower()).replace(" ", "-") for heading in self.headings]
        self.assertEqual(len(anchors), len(set(anchors)))
        targets = re.findall(r"\]\(#([^)]*)\)", self.text)
        self.assertGreater(len(targets), 500)
        self.assertEqual(set(targets) - set(anchors), set())
        for target in set(re.findall(r"\]\(([^)#]+)\)", self.text)):
            self.assertTrue((ROOT / "proto" / target).exists(), target)

    def test_whole(self):
        """Each element has its heading or row, and there are no others."""
        headings, rows = {"The API: `tp.v1`"}, 0

        def enum(scope, proto):
            nonlocal rows
            headings.add(scope + proto.name)
            for value in proto.value:
                rows += 1
                self.assertIn(f"\n| {value.number} | `{value.name}` | ", self.sections[scope + proto.name])

        def message(scope, proto):
            nonlocal rows
            name = scope + proto.name
            headings.add(name)
            for field in proto.field:
                rows += 1
                row = rf"\n\| {field.number} \| (\w+: )?`{field.name}` \| .+ \| .+ \|\n"
                self.assertRegex(self.sections[name], row)
            for nested in proto.nested_type:
                if not nested.options.map_entry:
                    message(name + ".", nested)
            for nested in proto.enum_type:
                enum(name + ".", nested)

        for file in self.api.file:
            headings.add(file.name)
            for proto in file.message_type:
                message("", proto)
            for proto in file.enum_type:
                enum("", proto)
            for service in file.service:
                headings.add(service.name)
                for rpc in service.method:
                    headings.add(f"{service.name}.{rpc.name}")
                    self.assertEqual(self.sections[service.name].count(f"\n| [{rpc.name}](#"), 1)
        self.assertEqual(set(self.headings), headings)
        self.assertEqual(len(re.findall(r"^\| \d+ \| ", self.text, re.M)), rows)
        self.assertGreater(rows, 600)


if __name__ == "__main__":
    unittest.main()
