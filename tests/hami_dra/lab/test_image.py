"""An image made of this host's programs is one that a runtime can import."""

import hashlib
import io
import json
import os
import tarfile
from pathlib import Path

import pytest

from hami_dra.lab.failure import LabError
from hami_dra.lab.image import Layer, write_archive, write_image
from hami_dra.migration import Json


def test_every_part_is_found_by_its_digest(tmp_path: Path) -> None:
    write_image(tmp_path / "image.tar", "example.com/probe:1", ["sh", "cat"])

    files = unpacked(tmp_path / "image.tar")
    [described] = json.loads(files["index.json"])["manifests"]
    manifest = blob(files, described)
    config = blob(files, manifest["config"])
    layer = raw(files, manifest["layers"][0])
    assert described["annotations"] == {"io.containerd.image.name": "example.com/probe:1"}
    assert config["rootfs"]["diff_ids"] == [f"sha256:{hashlib.sha256(layer).hexdigest()}"]


def test_programs_come_with_the_libraries_that_they_load(tmp_path: Path) -> None:
    write_image(tmp_path / "image.tar", "example.com/probe:1", ["cat"])

    files = unpacked(tmp_path / "image.tar")
    [described] = json.loads(files["index.json"])["manifests"]
    layer = raw(files, blob(files, described)["layers"][0])
    with tarfile.open(fileobj=io.BytesIO(layer)) as content:
        names = content.getnames()
    assert "bin/cat" in names
    assert any("libc.so" in name for name in names)
    assert any("/ld-" in name for name in names)


def test_a_program_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(LabError, match="no-such-program"):
        write_image(tmp_path / "image.tar", "example.com/probe:1", ["no-such-program"])


def test_the_same_content_is_the_same_image(tmp_path: Path) -> None:
    digests = set()
    for number in (1, 2):
        tree = tmp_path / str(number)
        (tree / "folder").mkdir(parents=True)
        # In another order, at another time, and readable to others.
        for name in sorted(["folder/b", "folder/a", "c"], reverse=number == 1):
            (tree / name).write_text("text")
            (tree / name).chmod(0o600 if number == 1 else 0o666)
            os.utime(tree / name, (number, number))
        (tree / "link").symlink_to("c")
        layer = Layer()
        layer.add_tree(tree)
        archive = tmp_path / f"{number}.tar"
        digests.add((write_archive(archive, "x:1", layer, {}), archive.read_bytes()))

    assert len(digests) == 1


def unpacked(path: Path) -> dict[str, bytes]:
    with tarfile.open(path) as archive:
        parts = {each.name: archive.extractfile(each) for each in archive}
        return {name: part.read() for name, part in parts.items() if part is not None}


def raw(files: dict[str, bytes], part: Json) -> bytes:
    content = files[f"blobs/sha256/{part['digest'].removeprefix('sha256:')}"]
    assert len(content) == part["size"]
    assert f"sha256:{hashlib.sha256(content).hexdigest()}" == part["digest"]
    return content


def blob(files: dict[str, bytes], part: Json) -> Json:
    found: Json = json.loads(raw(files, part))
    return found
