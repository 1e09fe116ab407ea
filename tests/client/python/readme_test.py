"""The examples of client/python/README.md and of the section Python in README.md run as they stand there."""
import contextlib
import io
import os
import re
import tempfile
import unittest
from pathlib import Path

import tensorplane
from support import SOURCE


def run_examples(text: str) -> int:
    """Runs the python blocks in one namespace; a text block after one holds what it prints. Returns their number."""
    blocks = re.findall(r"^```(\w+)\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)
    namespace: dict[str, object] = {}
    printed, count = "", 0
    for kind, body in blocks:
        if kind == "python":
            out = io.StringIO()
            with contextlib.redirect_stdout(out):
                exec(compile(body, "README.md", "exec"), namespace)
            printed, count = out.getvalue(), count + 1
        elif kind == "text":
            assert printed == body, f"the example prints\n{printed}\nand README.md says\n{body}"
    return count


class ReadmeTest(unittest.TestCase):

    def setUp(self) -> None:
        folder = Path(self.enterContext(tempfile.TemporaryDirectory()))
        (folder / "deploy").symlink_to(SOURCE / "deploy")
        self.addCleanup(os.chdir, os.getcwd())
        os.chdir(folder)
        self.addCleanup(self.delete)

    def delete(self) -> None:
        """What an example that failed left."""
        with tensorplane.Client() as client:
            for model in client.models():
                client.delete(model.name)
            for tensor in client.tensors():
                client.delete_tensor(tensor.name)
            for mesh in client.meshes():
                client.delete_mesh(mesh.name)

    def test_the_packages(self) -> None:
        self.assertGreaterEqual(run_examples((SOURCE / "client/python/README.md").read_text()), 6)

    def test_the_repositorys(self) -> None:
        section = re.search(r"^### Python\n(.*?)^### ", (SOURCE / "README.md").read_text(), flags=re.MULTILINE | re.DOTALL)
        assert section is not None
        self.assertEqual(run_examples(section[1]), 1)


if __name__ == "__main__":
    unittest.main()
