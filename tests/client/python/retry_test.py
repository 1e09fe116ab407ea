"""What the client sends again and what it doesn't, and what it makes of wrong answers: on a server in this process."""
import asyncio
import threading
import unittest
import zlib
from collections.abc import Callable, Iterator
from concurrent import futures
from typing import Any

import grpc
import numpy as np
import tensorplane
from tensorplane.v1 import coordinator_pb2, coordinator_pb2_grpc, dtensor_pb2, mesh_pb2, tensor_pb2

FAST = tensorplane.Retry(attempts=4, first_pause=0.001, longest_pause=0.002)


class Service(coordinator_pb2_grpc.CoordinatorServiceServicer):
    """Fails the first `failures` requests with `code`; keeps what arrives."""

    def __init__(self) -> None:
        self.failures, self.code = 0, grpc.StatusCode.UNAVAILABLE
        self.seen: list[Any] = []
        self.chunks: list[tensor_pb2.Chunk] = []
        self.left = threading.Event()  # set where the client has left the last Generate

    def arrived(self, request: Any, context: grpc.ServicerContext) -> None:
        self.seen.append(request)
        if len(self.seen) <= self.failures:
            context.abort(self.code, "not now")

    def DeleteModel(self, request: Any, context: grpc.ServicerContext) -> Any:
        self.arrived(request, context)
        return coordinator_pb2.DeleteModelResponse()

    def PutTensor(self, requests: Iterator[Any], context: grpc.ServicerContext) -> Any:
        messages = list(requests)
        self.arrived(messages, context)
        return dtensor_pb2.PutTensorResponse(tensor=dtensor_pb2.TensorDescription(name="w", dtype=tensor_pb2.F32))

    def Generate(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        left = self.left = threading.Event()
        context.add_callback(left.set)
        self.arrived(request, context)
        yield coordinator_pb2.GenerateResponse(token_ids=[1], text="a")
        if request.text == "lost":
            context.abort(grpc.StatusCode.UNAVAILABLE, "rank 1 is lost")
        if request.text == "slow":
            left.wait()
        yield coordinator_pb2.GenerateResponse(token_ids=[2], text="b", finish_reason="length")

    def GetTensor(self, request: Any, context: grpc.ServicerContext) -> Iterator[Any]:
        self.arrived(request, context)
        tensor = dtensor_pb2.TensorDescription(name="w", dtype=tensor_pb2.F32, shape=[2],
                                               axes=mesh_pb2.Mesh(axes=[mesh_pb2.MeshAxis(name="tp", size=1)]))
        blocks = [dtensor_pb2.TensorBlock(rank=0, offset=[0], shape=[2])]
        yield dtensor_pb2.GetTensorResponse(header=dtensor_pb2.GetTensorHeader(tensor=tensor, blocks=blocks))
        for chunk in self.chunks:
            yield dtensor_pb2.GetTensorResponse(chunk=chunk)


class ServedTest(unittest.TestCase):

    def setUp(self) -> None:
        self.service = Service()
        # As the coordinator: pings of idle clients are welcome.
        options = [("grpc.http2.max_ping_strikes", 0), ("grpc.keepalive_permit_without_calls", 1)]
        self.server = grpc.server(futures.ThreadPoolExecutor(4), options=options)
        coordinator_pb2_grpc.add_CoordinatorServiceServicer_to_server(self.service, self.server)
        port = self.server.add_insecure_port("127.0.0.1:0")
        self.server.start()
        self.addCleanup(lambda: self.server.stop(None).wait())
        self.addCleanup(lambda: self.service.left.set())
        self.address = f"127.0.0.1:{port}"
        self.client = tensorplane.Client(self.address, timeout=60, retry=FAST)
        self.addCleanup(self.client.close)


class RetryTest(ServedTest):

    def test_all_attempts_carry_one_request_id(self) -> None:
        self.service.failures = 3
        self.client.delete("m")
        ids = [request.request_id for request in self.service.seen]
        self.assertEqual(len(ids), 4)
        self.assertEqual(len(set(ids)), 1)
        self.assertTrue(ids[0])
        self.client.delete("m")
        self.assertNotEqual(self.service.seen[-1].request_id, ids[0])

    def test_attempts_are_bounded(self) -> None:
        self.service.failures = 99
        with self.assertRaises(tensorplane.UnavailableError) as error:
            self.client.delete("m")
        self.assertEqual((len(self.service.seen), error.exception.text), (4, "not now"))

    def test_other_codes_are_not_repeated(self) -> None:
        self.service.failures = 1
        for code in ("NOT_FOUND", "ABORTED", "INTERNAL", "RESOURCE_EXHAUSTED"):
            self.service.code = grpc.StatusCode[code]
            self.service.seen.clear()
            with self.assertRaises(tensorplane.TensorplaneError) as error:
                self.client.delete("m")
            self.assertEqual((len(self.service.seen), error.exception.code), (1, code))

    def test_an_upload_is_repeated_as_a_whole(self) -> None:
        self.service.failures = 1
        values = np.arange(400_000, dtype=np.float32)  # 1.6 MB: two chunks
        self.client.put_tensor("w", values, mesh="m")
        first, second = self.service.seen
        self.assertEqual([message.WhichOneof("kind") for message in second], ["header", "chunk", "chunk"])
        self.assertEqual(first, second)
        self.assertEqual([message.chunk.offset for message in second[1:]], [0, 1 << 20])
        self.assertEqual(b"".join(message.chunk.data for message in second[1:]), values.tobytes())
        for message in second[1:]:
            self.assertEqual(message.chunk.crc32, zlib.crc32(message.chunk.data))

    def test_a_stream_is_repeated_until_it_has_begun(self) -> None:
        self.service.failures = 2
        self.assertEqual([chunk.text for chunk in self.client.generate("m", "x")], ["a", "b"])
        self.assertEqual(len({request.request_id for request in self.service.seen}), 1)
        self.service.failures, got = 0, []
        self.service.seen.clear()
        with self.assertRaisesRegex(tensorplane.UnavailableError, "rank 1 is lost"):
            for chunk in self.client.generate("m", "lost"):
                got.append(chunk.text)
        self.assertEqual((got, len(self.service.seen)), (["a"], 1))

    def test_a_timeout_covers_all_attempts(self) -> None:
        with tensorplane.Client(self.address, timeout=0.2, retry=tensorplane.Retry(100, 0.001, 0.001)) as client:
            self.service.failures = 10**9
            with self.assertRaises(tensorplane.TensorplaneError) as error:
                while True:
                    client.delete("m")
            self.assertIn(error.exception.code, ("UNAVAILABLE", "DEADLINE_EXCEEDED"))
            self.service.failures = 0
            with self.assertRaises(tensorplane.DeadlineExceededError):
                list(client.generate("m", "slow"))

    def test_leaving_a_stream_cancels_it(self) -> None:
        for chunk in self.client.generate("m", "slow"):
            self.assertEqual(chunk.text, "a")
            break
        self.assertTrue(self.service.left.wait(60))

    def test_nobody_answers(self) -> None:
        self.server.stop(None).wait()
        with self.assertRaisesRegex(tensorplane.UnavailableError, f"no coordinator answers at {self.address}"):
            tensorplane.Client(self.address, retry=tensorplane.Retry(2, 0.001)).status()


class AnswersTest(ServedTest):
    GOOD = np.array([1, 2], np.float32).tobytes()

    def chunk(self, data: bytes, offset: int = 0, index: int = 0, crc32: int | None = None) -> tensor_pb2.Chunk:
        crc32 = zlib.crc32(data) if crc32 is None else crc32
        return tensor_pb2.Chunk(index=index, offset=offset, data=data, crc32=crc32)

    def test_a_good_answer(self) -> None:
        self.service.chunks = [self.chunk(self.GOOD[:3]), self.chunk(self.GOOD[3:], offset=3)]
        np.testing.assert_array_equal(self.client.get_tensor("w"), [1, 2])

    def test_wrong_answers_are_told(self) -> None:
        for chunks, kind in (
            ([self.chunk(self.GOOD, crc32=1)], tensorplane.DataLossError),
            ([self.chunk(self.GOOD[:4])], tensorplane.DataLossError),
            ([], tensorplane.DataLossError),
            ([self.chunk(self.GOOD, offset=4)], tensorplane.InternalError),
            ([self.chunk(self.GOOD, index=1)], tensorplane.InternalError),
            ([self.chunk(self.GOOD + b"more")], tensorplane.InternalError),
        ):
            self.service.chunks = chunks
            with self.subTest(chunks=chunks), self.assertRaises(kind):
                self.client.get_tensor("w")


class AsyncRetryTest(unittest.IsolatedAsyncioTestCase):
    """The same of AsyncClient, in short."""

    setUp: Callable[[Any], None] = ServedTest.setUp  # type: ignore[assignment]

    async def test_retries(self) -> None:
        async with tensorplane.AsyncClient(self.address, timeout=60, retry=FAST) as client:  # type: ignore[attr-defined]
            service: Service = self.service  # type: ignore[attr-defined]
            service.failures = 2
            await client.delete("m")
            self.assertEqual(len(service.seen), 3)
            self.assertEqual(len({request.request_id for request in service.seen}), 1)
            service.seen.clear()
            await client.put_tensor("w", np.ones(3, np.float32), mesh="m")
            self.assertEqual(len(service.seen), 3)
            self.assertEqual(service.seen[0], service.seen[2])
            service.seen.clear()
            self.assertEqual([chunk.text async for chunk in client.generate("m", "x")], ["a", "b"])
            service.failures = 0
            service.seen.clear()
            with self.assertRaisesRegex(tensorplane.UnavailableError, "rank 1 is lost"):
                [chunk async for chunk in client.generate("m", "lost")]
            self.assertEqual(len(service.seen), 1)
            service.failures = 99
            with self.assertRaises(tensorplane.UnavailableError):
                await client.delete("m")

            def fail(done: int, total: int) -> None:
                raise KeyError(done)

            service.failures = 0
            with self.assertRaises(KeyError):
                await client.put_tensor("w", np.ones(3, np.float32), mesh="m", progress=fail)
            async for chunk in client.generate("m", "slow"):
                self.assertEqual(chunk.text, "a")
                break
            self.assertTrue(await asyncio.to_thread(service.left.wait, 60))


if __name__ == "__main__":
    unittest.main()
