"""Whole repositories: directories, symbolic links, modes, one bad file among good ones."""

import json
import os
import stat
import subprocess
import sys
from contextlib import chdir, suppress
from pathlib import Path
from typing import NamedTuple

import pytest
from typer.testing import CliRunner

from hami_dra.cli.app import app

POD = """\
apiVersion: v1
kind: Pod
metadata:
  name: {name}
spec:
  containers:
  - name: main
    image: i
    resources:
      limits:
        nvidia.com/gpu: 1 # one
"""
PLAIN = "kind: ConfigMap\ndata: {a:   '1'}\n"
CONVERTED = "      claims:\n      - name: gpu-main\n"


class Ran(NamedTuple):
    """How a command ended."""

    returncode: int
    stdout: bytes
    stderr: bytes


def run(
    *arguments: str | Path, stdin: bytes = b"", path: str | None = None, cwd: Path = Path()
) -> Ran:
    """Run the command in this process, which starts faster than a shell's."""
    with chdir(cwd):
        result = CliRunner().invoke(
            app, [*map(str, arguments)], input=stdin, env={"PATH": path} if path else None
        )
    return Ran(result.exit_code, result.stdout_bytes, result.stderr_bytes)


def in_a_shell(*arguments: str | Path, stdin: bytes = b"") -> Ran:
    """Run the command as a shell does."""
    command = [sys.executable, "-m", "hami_dra.cli", *map(str, arguments)]
    ran = subprocess.run(command, input=stdin, capture_output=True, check=False)
    return Ran(ran.returncode, ran.stdout, ran.stderr)


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    root = tmp_path / "repository"
    (root / "below").mkdir(parents=True)
    (root / "a.yaml").write_text(POD.format(name="a"))
    (root / "b.yml").write_text(PLAIN)
    (root / "c.json").write_text('{"kind": "ConfigMap"}')
    (root / "notes.txt").write_text("nvidia.com/gpu: 1")
    (root / "below" / "d.yaml").write_text(POD.format(name="d"))
    return root


def test_a_directory_is_read_in_the_order_of_paths_and_r_goes_below(repository: Path) -> None:
    flat = run("convert", "-f", repository).stdout.decode()
    deep = run("convert", "-R", "-f", repository).stdout.decode()

    assert flat.startswith("apiVersion: resource.k8s.io/v1\n")
    assert flat.endswith(f'---\n{PLAIN}---\n{{"kind": "ConfigMap"}}')
    assert ("name: d" in flat, "name: d" in deep) == (False, True)
    assert deep.count("kind: ResourceClaimTemplate") == 1
    assert "notes" not in deep


def test_files_are_replaced_in_place_and_the_others_not_touched(repository: Path) -> None:
    (repository / "a.yaml").chmod(0o640)
    before = {f: f.stat() for f in repository.rglob("*.*")}

    ran = run("convert", "-R", "-f", repository, "--in-place", "--report", "json")

    report = json.loads(ran.stdout)
    assert (ran.returncode, report["files"], report["changed"], report["errors"]) == (0, 4, 2, [])
    changed = repository / "a.yaml"
    assert CONVERTED in changed.read_text()
    assert changed.read_text().startswith("apiVersion: resource.k8s.io/v1")
    assert (repository / "below" / "d.yaml").read_text().startswith("apiVersion: v1\n")
    assert stat.S_IMODE(changed.stat().st_mode) == 0o640
    for name in ("b.yml", "c.json"):
        file = repository / name
        assert file.stat().st_mtime_ns == before[file].st_mtime_ns
    assert not list(repository.rglob(".*"))
    assert json.loads(run("convert", "-R", "-f", repository, "--in-place", "--report=json").stdout)[
        "changed"
    ] == 0  # fmt: skip
    run("revert", "-R", "-f", repository, "--in-place")
    assert changed.read_text() == POD.format(name="a").replace(" # one", "")


def test_an_output_directory_has_every_file_under_its_path(repository: Path) -> None:
    out = repository.parent / "out"

    ran = run("convert", "-R", "-f", repository, "--output-dir", out)

    names = sorted(str(f.relative_to(out)) for f in out.rglob("*") if f.is_file())
    assert (ran.returncode, ran.stdout) == (0, b"")
    assert names == ["a.yaml", "b.yml", "below/d.yaml", "c.json"]
    assert (out / "b.yml").read_text() == PLAIN
    assert (repository / "a.yaml").read_text() == POD.format(name="a")


def test_two_inputs_of_one_name_do_not_overwrite_each_other(repository: Path) -> None:
    other = repository / "below" / "a.yaml"
    other.write_text(POD.format(name="other"))
    out = repository.parent / "out"

    ran = run("convert", "-f", repository / "a.yaml", "-f", other, "--output-dir", out)

    assert ran.returncode == 1
    assert b"was written to" in ran.stderr
    assert "name: a\n" in (out / "a.yaml").read_text()


def test_one_bad_file_does_not_stop_the_others(repository: Path) -> None:
    (repository / "a0.yaml").write_text("nvidia.com/gpu: [1\n")
    (repository / "a1.yaml").write_bytes(b"nvidia.com/gpu: \xff\n")
    bad = {f: f.read_bytes() for f in (repository / "a0.yaml", repository / "a1.yaml")}

    ran = run("convert", "-R", "-f", repository, "--in-place")

    said = ran.stderr.decode().splitlines()
    assert ran.returncode == 1
    assert len(said) == 2
    assert said[0].startswith(f"hami-dra: {repository}/a0.yaml:2:1: not YAML")
    assert said[1].startswith(f"hami-dra: {repository}/a1.yaml:1:17: byte 16 is not UTF-8")
    assert {f: f.read_bytes() for f in bad} == bad
    assert CONVERTED in (repository / "below" / "d.yaml").read_text()


def test_a_template_of_a_file_that_failed_stands_in_the_next_one(repository: Path) -> None:
    """What was to be written first was not, so the first file that is written gets it."""
    (repository / "a.yaml").write_text(POD.format(name="a") + "---\nnvidia.com/gpu: [\n")

    ran = run("convert", "-R", "-f", repository)

    assert ran.returncode == 1
    assert ran.stdout.decode().index("ResourceClaimTemplate") < ran.stdout.decode().index("name: d")


def test_symbolic_links_are_not_followed_out_of_the_tree(repository: Path) -> None:
    outside = repository.parent / "outside.yaml"
    outside.write_text(POD.format(name="outside"))
    elsewhere = repository.parent / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "e.yaml").write_text(POD.format(name="e"))
    (repository / "link.yaml").symlink_to(outside)
    (repository / "tree").symlink_to(elsewhere)
    (repository / "within.yaml").symlink_to(repository / "below" / "d.yaml")

    ran = run("convert", "-f", repository, "--in-place")

    assert ran.returncode == 0
    assert outside.read_text() == POD.format(name="outside")
    assert (elsewhere / "e.yaml").read_text() == POD.format(name="e")
    assert (repository / "within.yaml").is_symlink()
    assert CONVERTED in (repository / "below" / "d.yaml").read_text()


def test_a_directory_of_nothing_but_links_out_of_it_is_told(repository: Path) -> None:
    links = repository.parent / "links"
    links.mkdir()
    (links / "a.yaml").symlink_to(repository / "a.yaml")

    ran = run("convert", "-f", links)

    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b"found symbolic links that lead out of it and nothing else" in ran.stderr


def test_a_link_to_itself_is_told_and_does_not_stop_the_others(repository: Path) -> None:
    (repository / "0.yaml").symlink_to("0.yaml")
    (repository / "below" / "up").symlink_to(repository)

    ran = run("convert", "-R", "-f", repository, "--in-place")

    said = f"hami-dra: {repository}/0.yaml: Too many levels of symbolic links; name a readable"
    assert ran.returncode == 1
    assert ran.stderr.decode().startswith(said)
    assert CONVERTED in (repository / "a.yaml").read_text()
    assert CONVERTED in (repository / "below" / "d.yaml").read_text()


def test_a_directory_that_cannot_be_read_is_told(repository: Path) -> None:
    """What is below it could ask for GPUs; a path that is too long is refused to root as well."""
    with chdir(repository):
        for _ in range(20):
            os.mkdir("x" * 250)  # noqa: PTH102 - as the next line
            os.chdir("x" * 250)

    ran = run("convert", "-R", "-f", repository, "--in-place")

    assert ran.returncode == 1
    assert b": File name too long; name what can be read" in ran.stderr
    assert (repository / "a.yaml").read_text() == POD.format(name="a")


def test_what_is_no_file_is_told_and_waited_for_by_nobody(repository: Path) -> None:
    """A pipe to which nobody writes is read for ever, be it a manifest or a kustomization."""
    os.mkfifo(repository / "0.yaml")
    os.mkfifo(repository / "kustomization.yaml")
    (repository / "1.json").symlink_to("0.yaml")

    ran = run("convert", "-R", "-f", repository, "--in-place")

    said = ran.stderr.decode().splitlines()
    assert ran.returncode == 1
    assert said == [
        f"hami-dra: {repository}/{name}: found a pipe, socket or device, expected a file; name it"
        " itself to read it"
        for name in ("0.yaml", "1.json", "kustomization.yaml")
    ]
    assert CONVERTED in (repository / "a.yaml").read_text()


def test_a_pipe_that_is_named_is_read_and_replaced_by_nothing(tmp_path: Path) -> None:
    """It is what a shell makes of `<(helm template chart)`."""
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    with subprocess.Popen(["/bin/sh", "-c", 'printf %s "$1" > "$2"', "sh", POD, pipe]):
        ran = run("convert", "-f", pipe)
    refused = run("convert", "-f", pipe, "--in-place")

    assert (ran.returncode, ran.stdout.decode().count(CONVERTED)) == (0, 1)
    assert (refused.returncode, pipe.is_fifo()) == (2, True)
    assert f"--in-place: found {pipe}, expected files" in refused.stderr.decode()


def test_a_path_that_nobody_may_look_at_is_told(tmp_path: Path) -> None:
    """A name that is too long is refused to root as well, as a closed directory is to others."""
    ran = run("convert", "-f", tmp_path / ("x" * 300))

    assert (ran.returncode, ran.stdout) == (1, b"")
    assert b": File name too long; name a readable file" in ran.stderr


def test_a_template_of_another_file_is_not_written_again(repository: Path) -> None:
    """A file that came later can sort before the one that an earlier conversion wrote it into."""
    below = repository / "below" / "d.yaml"
    run("convert", "-f", below, "--in-place")
    before = below.read_bytes()

    shown = run("diff", "-R", "-f", repository)
    ran = run("convert", "-R", "-f", repository, "--in-place")

    assert (ran.returncode, below.read_bytes()) == (0, before)
    assert CONVERTED in (repository / "a.yaml").read_text()
    assert "ResourceClaimTemplate" not in (repository / "a.yaml").read_text()
    assert b"ResourceClaimTemplate" not in shown.stdout


def test_a_template_of_a_file_that_cannot_be_written_stands_in_the_next_one(
    repository: Path,
) -> None:
    out = repository.parent / "out"
    (out / "a.yaml").mkdir(parents=True)

    ran = run("convert", "-R", "-f", repository, "--output-dir", out)

    assert ran.returncode == 1
    assert "ResourceClaimTemplate" in (out / "below" / "d.yaml").read_text()


def test_a_link_that_is_named_and_leads_out_is_refused_in_place(repository: Path) -> None:
    outside = repository.parent / "outside.yaml"
    outside.write_text(POD.format(name="outside"))
    (repository / "link.yaml").symlink_to(outside)

    ran = run("convert", "-f", repository / "link.yaml", "--in-place")

    assert ran.returncode == 1
    assert b"found a symbolic link to" in ran.stderr
    assert outside.read_text() == POD.format(name="outside")


def test_an_output_directory_is_not_left_by_a_link(repository: Path) -> None:
    out, elsewhere = repository.parent / "out", repository.parent / "elsewhere"
    out.mkdir()
    elsewhere.mkdir()
    (out / "below").symlink_to(elsewhere)

    ran = run("convert", "-R", "-f", repository, "--output-dir", out)

    assert ran.returncode == 1
    assert b"leads out of" in ran.stderr
    assert not list(elsewhere.iterdir())


def test_a_file_that_cannot_be_written_stays_as_it_is(repository: Path) -> None:
    """A directory that takes no file, as on a full disk, leaves the old file and no other."""
    file = repository / "a.yaml"
    program = (
        "import os, sys\nfrom hami_dra.cli.app import app\n"
        "def fail(descriptor): raise OSError(28, 'No space left on device')\n"
        "os.fsync = fail\n"
        f"app(['convert', '-f', {str(file)!r}, '--in-place'])\n"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert ran.returncode == 1
    assert b"a.yaml: No space left on device; it was not changed" in ran.stderr
    assert file.read_text() == POD.format(name="a")
    assert not list(repository.glob(".*"))


def test_an_interrupt_leaves_the_old_file_and_no_other(repository: Path) -> None:
    file = repository / "a.yaml"
    program = (
        "import os, signal\nfrom hami_dra.cli.app import app\n"
        # A shell has what it runs in the background ignore it.
        "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
        "os.fsync = lambda descriptor: signal.raise_signal(signal.SIGINT)\n"
        f"app(['convert', '-f', {str(file)!r}, '--in-place'])\n"
    )

    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, check=False)

    assert ran.returncode != 0
    assert file.read_text() == POD.format(name="a")
    assert not list(repository.glob(".*"))


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        ((), 2, "found no input, expected -f FILE"),
        (("-f", "empty"), 1, "empty: found no .yaml, .yml, .json file; -R looks into"),
        (("-R", "-f", "empty"), 1, "empty: found no .yaml, .yml, .json file\n"),
        (("-f", "none.yaml"), 1, "none.yaml: No such file or directory; name a readable file"),
        (("-f", ""), 1, "-f: found an empty name, expected a file, a directory or -"),
        (("-k", ""), 1, "-k: found an empty name, expected a directory"),
        (("-f", "-", "--output-dir", ""), 2, "found an empty name, expected a directory"),
        (("-f", "https://x/y.yaml"), 1, "found a URL, expected a file; pipe it: curl -fsSL"),
        (("-f", "-", "--in-place"), 2, "--in-place: found -, expected files"),
        (("-f", "-", "--in-place", "-o", "json"), 2, "expected one of --in-place"),
        (("-f", "-", "--validate", "server"), 2, "expected --context or --kubeconfig"),
    ],
)
def test_what_cannot_be_done_is_said(
    arguments: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()

    ran = run("convert", *arguments, cwd=tmp_path)

    assert (ran.returncode, ran.stdout) == (code, b"")
    assert said in ran.stderr.decode()


def test_a_pipe_sees_no_progress_bar(tmp_path: Path) -> None:
    for index in range(250):
        (tmp_path / f"{index}.yaml").write_text(PLAIN)

    ran = in_a_shell("convert", "-f", tmp_path, "--in-place")

    assert ran == (0, b"", b"")


def test_a_terminal_sees_how_far_a_long_run_is(tmp_path: Path) -> None:
    for index in range(250):
        (tmp_path / f"{index}.yaml").write_text(PLAIN)
    command = [sys.executable, "-m", "hami_dra.cli", "convert", "-f", str(tmp_path), "--in-place"]
    terminal, slave = os.openpty()

    with subprocess.Popen(command, stderr=slave) as process:
        os.close(slave)
        shown = b""
        with suppress(OSError):  # how a terminal says that nobody holds its other end any more
            while read := os.read(terminal, 1 << 12):
                shown += read
    os.close(terminal)

    assert (process.returncode, b"100%" in shown) == (0, True)


def test_standard_input_and_files_mix(repository: Path) -> None:
    ran = run("convert", "-f", repository / "b.yml", "-f", "-", stdin=PLAIN.encode())

    assert ran.stdout.decode() == f"{PLAIN}---\n{PLAIN}"


KUSTOMIZATION = "resources: [pod.yaml]\nnamePrefix: mine-\n"


def test_a_kustomization_is_built_by_kubectl(tmp_path: Path) -> None:
    (tmp_path / "kustomization.yaml").write_text(KUSTOMIZATION)
    (tmp_path / "pod.yaml").write_text(POD.format(name="p"))

    built = run("convert", "-k", tmp_path)
    missing = run("convert", "-k", tmp_path, path=str(tmp_path))
    (tmp_path / "kustomization.yaml").write_text("resources: [nothing.yaml]\n")
    failed = run("convert", "-k", tmp_path)

    assert b"name: mine-p" in built.stdout
    assert CONVERTED.encode() in built.stdout
    assert b"found no kubectl, which builds kustomizations" in missing.stderr
    assert b"kubectl kustomize failed: " in failed.stderr
    assert [ran.returncode for ran in (built, missing, failed)] == [0, 1, 1]


def test_everything_can_be_printed_as_one_list_or_as_yaml(repository: Path) -> None:
    listed = json.loads(run("convert", "-f", repository, "-o", "json").stdout)
    as_yaml = run("convert", "-f", repository, "-o", "yaml").stdout.decode()

    kinds = [item["kind"] for item in listed["items"]]
    assert kinds == ["ResourceClaimTemplate", "Pod", "ConfigMap", "ConfigMap"]
    assert as_yaml.endswith(f"---\n{PLAIN}---\nkind: ConfigMap\n")


def test_a_byte_order_mark_is_no_separator(tmp_path: Path) -> None:
    marked = tmp_path / "marked.yaml"
    marked.write_text(f"\ufeff{PLAIN}")
    behind = tmp_path / "behind.yaml"
    behind.write_text(f'{PLAIN}--- {{"kind": "Secret"}}\n')

    ran = run("convert", "-f", behind, "-f", marked, "-f", marked, "-o", "yaml")

    assert ran.stdout.decode() == (
        f"{PLAIN}---\nkind: Secret\n---\n\ufeff{PLAIN}---\n\ufeff{PLAIN}"
    )


@pytest.mark.parametrize("command", ["convert", "convert -o yaml", "convert -o json", "diff"])
@pytest.mark.parametrize("settings", [{"PYTHONIOENCODING": "ascii"}, {"LC_ALL": "C"}])
def test_output_is_utf_8_whatever_the_terminal_speaks(
    settings: dict[str, str], command: str, tmp_path: Path
) -> None:
    """Manifests are; a file's name is the bytes that it is."""
    file = os.fsencode(tmp_path) + b"/\xff.yaml"
    Path(os.fsdecode(file)).write_text(f"# käse\n{POD.format(name='käse')}")
    program = [sys.executable, "-c", "from hami_dra.cli.app import main; main()"]

    ran = subprocess.run(
        [*program, *command.split(), "-f", file],
        capture_output=True,
        check=False,
        env=os.environ | settings,
    )

    assert ran.returncode == (1 if command == "diff" else 0), ran.stderr.decode()
    assert "name: käse" in ran.stdout.decode(errors="surrogateescape").replace('"', "")


def test_half_a_pair_of_surrogates_comes_out_as_it_went_in() -> None:
    text = '{"kind": "ConfigMap", "data": {"a": "\\ud800"}}\n'

    ran = run("convert", "-f", "-", "-o", "json", stdin=text.encode())

    assert json.loads(ran.stdout) == json.loads(text)


REJECTED = POD.format(name="bad").replace("gpu: 1", "gpu: -1")


@pytest.mark.parametrize("format_", ["table", "json", "yaml", "markdown"])
def test_a_report_names_what_was_rejected(format_: str) -> None:
    ran = in_a_shell("convert", "-f", "-", "--report", format_, stdin=REJECTED.encode())

    assert (ran.returncode, ran.stdout.decode()) == (3, REJECTED)
    assert "Pod/bad" in ran.stderr.decode()
    assert "must be greater than or equal to 0" in ran.stderr.decode()


def test_strict_ends_with_3_when_there_is_a_notice() -> None:
    two = POD.format(name="two").replace("gpu: 1", "gpu: 2").encode()

    assert run("convert", "-f", "-", stdin=two).returncode == 0
    strict = run("convert", "-f", "-", "--strict", stdin=two)
    assert (strict.returncode, CONVERTED in strict.stdout.decode()) == (3, True)
    assert run("convert", "-f", "-", "--strict", "--kube-version=1.37", stdin=two).returncode == 0
