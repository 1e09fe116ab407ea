"""TLS: the files that a client is given or that the environment names, on a server in this process."""
import os
import subprocess
import tempfile
import unittest
from concurrent import futures
from pathlib import Path
from typing import Any
from unittest import mock

import grpc
import tensorplane
from tensorplane.v1 import coordinator_pb2, coordinator_pb2_grpc

ONCE = tensorplane.Retry(attempts=1)


class Service(coordinator_pb2_grpc.CoordinatorServiceServicer):

    def GetStatus(self, request: Any, context: grpc.ServicerContext) -> Any:
        return coordinator_pb2.GetStatusResponse(version="of TLS")


def openssl(*arguments: object) -> None:
    subprocess.run(["openssl", *map(str, arguments)], check=True, capture_output=True)


class TlsTest(unittest.TestCase):

    @classmethod
    def setUpClass(cls) -> None:
        cls.folder = Path(cls.enterClassContext(tempfile.TemporaryDirectory()))
        for authority in ("ca", "other"):
            openssl("req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", 2, "-subj", f"/CN={authority}", "-keyout",
                    cls.folder / f"{authority}.key", "-out", cls.folder / f"{authority}.pem")
        cls.sign("server", "ca")
        cls.sign("client", "ca")
        cls.sign("stranger", "other")
        server = grpc.server(futures.ThreadPoolExecutor(2))
        coordinator_pb2_grpc.add_CoordinatorServiceServicer_to_server(Service(), server)
        read = {name: (cls.folder / name).read_bytes() for name in ("server.key", "server.pem", "ca.pem")}
        credentials = grpc.ssl_server_credentials([(read["server.key"], read["server.pem"])], read["ca.pem"], True)
        cls.address = f"127.0.0.1:{server.add_secure_port('127.0.0.1:0', credentials)}"
        server.start()
        cls.addClassCleanup(server.stop, None)

    @classmethod
    def sign(cls, name: str, authority: str) -> None:
        at = cls.folder / name
        (cls.folder / "names").write_text("subjectAltName=IP:127.0.0.1\n")
        openssl("req", "-newkey", "rsa:2048", "-nodes", "-subj", f"/CN={name}", "-keyout", f"{at}.key", "-out", f"{at}.csr")
        openssl("x509", "-req", "-in", f"{at}.csr", "-CA", cls.folder / f"{authority}.pem", "-CAkey",
                cls.folder / f"{authority}.key", "-CAcreateserial", "-days", 2, "-extfile", cls.folder / "names", "-out",
                f"{at}.pem")

    def file(self, name: str) -> str:
        return str(self.folder / name)

    def version(self, **files: Any) -> str:
        with tensorplane.Client(self.address, 60, retry=ONCE, **files) as client:
            return client.status().version

    def test_an_authority_and_an_own_certificate(self) -> None:
        own = {"tls_cert": self.file("client.pem"), "tls_key": self.folder / "client.key"}
        self.assertEqual(self.version(tls_ca=self.file("ca.pem"), **own), "of TLS")
        for files in ({"tls_ca": self.file("ca.pem")}, {"tls_ca": self.file("other.pem"), **own}, own, {},
                      {"tls_ca": self.file("ca.pem"), "tls_cert": self.file("stranger.pem"),
                       "tls_key": self.file("stranger.key")}):
            with self.assertRaises(tensorplane.UnavailableError, msg=str(files)):
                self.version(**files)

    def test_the_environment_where_nothing_is_given(self) -> None:
        names = {f"TP_TLS_{kind}": self.file(name)
                 for kind, name in (("CA", "ca.pem"), ("CERT", "client.pem"), ("KEY", "client.key"))}
        with mock.patch.dict(os.environ, names):
            self.assertEqual(self.version(), "of TLS")
            with self.assertRaises(tensorplane.UnavailableError):
                self.version(tls_ca=self.file("ca.pem"))  # the environment's certificate is not taken then

    def test_wrong_files(self) -> None:
        with self.assertRaisesRegex(tensorplane.NotFoundError, "tls_ca: /nowhere"):
            self.version(tls_ca="/nowhere")
        with self.assertRaisesRegex(tensorplane.InvalidArgumentError, "tls_cert and tls_key"):
            self.version(tls_cert=self.file("client.pem"))


class AsyncTlsTest(unittest.IsolatedAsyncioTestCase):

    async def test_files(self) -> None:
        TlsTest.setUpClass()
        self.addCleanup(TlsTest.doClassCleanups)
        folder = TlsTest.folder
        async with tensorplane.AsyncClient(TlsTest.address, 60, retry=ONCE, tls_ca=folder / "ca.pem",
                                           tls_cert=folder / "client.pem", tls_key=folder / "client.key") as client:
            self.assertEqual((await client.status()).version, "of TLS")


if __name__ == "__main__":
    unittest.main()
