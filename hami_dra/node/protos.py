"""Classes of protobuf messages, from a table of their fields instead of generated code.

Generated code would fail at import when it and the installed protobuf drift apart. Each table has a
pool of its own, since packages of the kubelet are plainly called `v1`, as others are too.
"""

from collections.abc import Mapping
from typing import Any, Final, TypeAlias

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

Messages: TypeAlias = Mapping[str, tuple[tuple[str, int, str, str], ...]]
"""Fields by message: name, number, type (or a message's name), and "repeated", "optional" or ""."""

_Field = descriptor_pb2.FieldDescriptorProto
_PACKAGE: Final = "hamidra"
_TYPES: Final = {
    "string": _Field.TYPE_STRING,
    "bool": _Field.TYPE_BOOL,
    "int32": _Field.TYPE_INT32,
    "int64": _Field.TYPE_INT64,
}


def classes(file: str, messages: Messages) -> Mapping[str, Any]:
    """Make a class of each message.

    Args:
        file: what the table is called in errors of protobuf.
        messages: the table; fields that it leaves out are passed over when a message is read.
    """
    described = descriptor_pb2.FileDescriptorProto(name=file, package=_PACKAGE, syntax="proto3")
    for name, fields in messages.items():
        message = described.message_type.add(name=name)
        for field, number, kind, mark in fields:
            _add_field(message, field, number, kind, mark)
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return {
        name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{_PACKAGE}.{name}"))
        for name in messages
    }


def _add_field(
    message: descriptor_pb2.DescriptorProto, name: str, number: int, kind: str, mark: str
) -> None:
    is_repeated = mark == "repeated"
    field = message.field.add(
        name=name,
        number=number,
        label=_Field.LABEL_REPEATED if is_repeated else _Field.LABEL_OPTIONAL,
        type=_TYPES.get(kind, _Field.TYPE_MESSAGE),
    )
    if kind not in _TYPES:
        field.type_name = f".{_PACKAGE}.{kind}"
    if mark == "optional":
        # Presence in proto3 is a union of one member.
        message.oneof_decl.add(name=f"_{name}")
        field.proto3_optional = True
        field.oneof_index = len(message.oneof_decl) - 1
