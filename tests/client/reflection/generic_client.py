"""Any gRPC server from nothing but its address, by the reflection that it answers: no file of messages is read.

    client = GenericClient("127.0.0.1:7050")
    client.services()                              # ["tp.v1.CoordinatorService", ...]
    client.describe("tp.v1.CoordinatorService")    # {"GetStatus": ("tp.v1.GetStatusRequest", "tp.v1.GetStatusResponse"), ...}
    client.call("tp.v1.CoordinatorService/GetStatus", {})    # messages as JSON values; a stream answers a list
"""
from typing import Any

import grpc
from google.protobuf import descriptor_pb2, descriptor_pool, json_format, message_factory

METHOD = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo"


def reflection_messages() -> tuple[Any, Any]:
    """The request and the response of grpc/reflection/v1alpha/reflection.proto, as far as they are used here."""
    field = descriptor_pb2.FieldDescriptorProto
    file = descriptor_pb2.FileDescriptorProto(name="reflection.proto", package="grpc.reflection.v1alpha", syntax="proto3")

    def add(message: str, *fields: tuple[str, int, Any, str, bool]) -> None:
        proto = file.message_type.add(name=message)
        for name, number, kind, type_name, repeated in fields:
            proto.field.add(name=name, number=number, type=kind, type_name=type_name or None,
                            label=field.LABEL_REPEATED if repeated else field.LABEL_OPTIONAL)

    of = ".grpc.reflection.v1alpha."
    add("ServerReflectionRequest", ("file_containing_symbol", 4, field.TYPE_STRING, "", False),
        ("list_services", 7, field.TYPE_STRING, "", False))
    file.message_type[0].oneof_decl.add(name="kind")  # presence: an empty list_services is sent too
    for one in file.message_type[0].field:
        one.oneof_index = 0
    add("FileDescriptorResponse", ("file_descriptor_proto", 1, field.TYPE_BYTES, "", True))
    add("ServiceResponse", ("name", 1, field.TYPE_STRING, "", False))
    add("ListServiceResponse", ("service", 1, field.TYPE_MESSAGE, of + "ServiceResponse", True))
    add("ErrorResponse", ("error_code", 1, field.TYPE_INT32, "", False), ("error_message", 2, field.TYPE_STRING, "", False))
    add("ServerReflectionResponse",
        ("file_descriptor_response", 4, field.TYPE_MESSAGE, of + "FileDescriptorResponse", False),
        ("list_services_response", 6, field.TYPE_MESSAGE, of + "ListServiceResponse", False),
        ("error_response", 7, field.TYPE_MESSAGE, of + "ErrorResponse", False))
    made = message_factory.GetMessages([file])
    return (made["grpc.reflection.v1alpha.ServerReflectionRequest"],
            made["grpc.reflection.v1alpha.ServerReflectionResponse"])


class GenericClient:

    def __init__(self, server: str) -> None:
        self._channel = grpc.insecure_channel(server, [("grpc.enable_http_proxy", 0)])
        self._request, self._response = reflection_messages()
        self._pool = descriptor_pool.DescriptorPool()
        self._symbols: set[str] = set()
        self._files: set[str] = set()
        self._factory = message_factory.MessageFactory(self._pool)

    def _ask(self, **kind: str) -> Any:
        ask = self._channel.stream_stream(METHOD, self._request.SerializeToString, self._response.FromString)
        answer = next(iter(ask(iter([self._request(**kind)]), timeout=60)))
        if answer.HasField("error_response"):
            raise KeyError(answer.error_response.error_message)
        return answer

    def services(self) -> list[str]:
        return [service.name for service in self._ask(list_services="").list_services_response.service]

    def _load(self, symbol: str) -> None:
        """Adds the files that hold a service or a message to the pool, dependencies first."""
        if symbol in self._symbols:
            return
        answer = self._ask(file_containing_symbol=symbol).file_descriptor_response
        files = {file.name: file for file in map(descriptor_pb2.FileDescriptorProto.FromString,
                                                 answer.file_descriptor_proto)}

        def add(file: Any) -> None:
            if file.name in self._files:
                return
            self._files.add(file.name)
            for dependency in file.dependency:
                if dependency in files:
                    add(files[dependency])
            self._pool.Add(file)

        for file in files.values():
            add(file)
        self._symbols.add(symbol)

    def _service(self, name: str) -> Any:
        self._load(name)
        return self._pool.FindServiceByName(name)

    def _class(self, descriptor: Any) -> Any:
        """The class of a message; what makes it has another name since protobuf 4.22."""
        make = getattr(message_factory, "GetMessageClass", None)
        return make(descriptor) if make is not None else self._factory.GetPrototype(descriptor)

    def encode(self, message: str, value: dict[str, Any]) -> bytes:
        """The bytes of a message that is known by name, as "tp.v1.Submission"."""
        self._load(message)
        made = self._class(self._pool.FindMessageTypeByName(message))()
        return bytes(json_format.ParseDict(value, made).SerializeToString())

    def describe(self, service: str) -> dict[str, tuple[str, str]]:
        return {method.name: (method.input_type.full_name, method.output_type.full_name)
                for method in self._service(service).methods}

    def call(self, method: str, *requests: dict[str, Any]) -> Any:
        """`method`: "SERVICE/METHOD". Several requests are a stream."""
        service, _, name = method.partition("/")
        descriptor = self._service(service).methods_by_name[name]
        proto = descriptor_pb2.MethodDescriptorProto()
        descriptor.CopyToProto(proto)
        request_type = self._class(descriptor.input_type)
        response_type = self._class(descriptor.output_type)
        messages = [json_format.ParseDict(request, request_type()) for request in requests]
        kind = ("stream" if proto.client_streaming else "unary") + ("_stream" if proto.server_streaming else "_unary")
        call = getattr(self._channel, kind)("/" + method, request_type.SerializeToString, response_type.FromString)
        answer = call(iter(messages) if proto.client_streaming else messages[0], timeout=60)

        def value(message: Any) -> Any:
            return json_format.MessageToDict(message, preserving_proto_field_name=True)

        return list(map(value, answer)) if proto.server_streaming else value(answer)
