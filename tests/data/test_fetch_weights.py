"""`python -m dpatlas.data.fetch_weights`: a published weight file appears, unopened."""

import hashlib
from dataclasses import replace

import pytest
from local_server import serve
from miniatures import write_files

from dpatlas.base.networks import PUBLISHED
from dpatlas.data import fetch_weights as module
from dpatlas.errors import run_command

# A pickle that would run code, so that opening it could not go unseen.
CONTENT = b"cposix\nsystem\n(S'touch proof'\ntR." * 2000
SHA256 = hashlib.sha256(CONTENT).hexdigest()
FILE = f"net-{SHA256[:8]}.pth"
RESNET, MOCO = "imagenet-resnet18", "moco-v2-resnet50"


@pytest.fixture
def run(server, tmp_path, monkeypatch):
    """Runs the command with the server as the publisher of the ResNet; gives its exit code."""
    weights = replace(PUBLISHED[RESNET], address=f"{server.address}/{FILE}")
    monkeypatch.setattr(module, "PUBLISHED", {**PUBLISHED, RESNET: weights})
    monkeypatch.chdir(tmp_path)

    def command(*arguments, name=RESNET, output="out/net.pth"):
        given = ["--name", name, "--output", output, "--download-folder", "cache", *arguments]
        return run_command(module.main, given)

    return command


@pytest.mark.parametrize("folder", ["root", "cache"])
def test_a_local_file_is_handed_on_as_it_is_and_nothing_is_fetched(run, server, tmp_path, folder):
    (tmp_path / "root").mkdir()
    path = write_files(tmp_path, {f"{folder}/{FILE}": CONTENT}) / folder / FILE
    for _ in range(2):
        assert run("--data-root", "root") == 0
        assert (tmp_path / "out/net.pth").read_bytes() == CONTENT
    # A download takes no room twice; a user's file is not tied to ours.
    assert path.samefile(tmp_path / "out/net.pth") == (folder == "cache")
    assert server.paths == [] and not (tmp_path / "proof").exists()
    assert [each.name for each in (tmp_path / "out").iterdir()] == ["net.pth"]


def test_a_published_file_is_fetched_where_that_is_allowed(run, server, tmp_path, capsys):
    server.answers = [serve(CONTENT)]
    assert run() == 2 and server.paths == []
    line = capsys.readouterr().err
    for part in ("data.root", "cache", FILE, server.address, "permission to download"):
        assert part in line
    assert run("--allow-download") == 0 and server.paths == [f"/{FILE}"]
    assert (tmp_path / "out/net.pth").read_bytes() == CONTENT


def test_a_checkpoint_without_an_address_is_the_file_that_the_user_names(run, tmp_path):
    (tmp_path / "mine.pth").write_bytes(CONTENT)
    given = ["--weights-file", "mine.pth", "--sha256", SHA256[:9].upper()]
    assert run(*given, name=MOCO) == 0
    assert (tmp_path / "out/net.pth").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("arguments", "name", "words"),
    [
        ([], "resnet18", "--name: found 'resnet18'; allowed: one of imagenet-resnet18"),
        (["--data-root", "nowhere"], RESNET, "data.root: found 'nowhere'"),
        (["--data-root", "damaged"], RESNET, "damaged or another"),
        (["--weights-file", "mine.pth"], RESNET, "has an address"),
        (["--allow-download", "--mirror", "ftp://x"], RESNET, "data.mirrors"),
        ([], MOCO, "--weights-file: found nothing"),
        (["--weights-file", "nowhere.pth"], MOCO, "no file nowhere.pth"),
        (["--weights-file", "mine.pth", "--sha256", "0" * 8], MOCO, f"sha256 {SHA256}"),
    ],
)
def test_what_cannot_be_is_one_line_and_exit_code_2(run, tmp_path, capsys, arguments, name, words):
    write_files(tmp_path, {"mine.pth": CONTENT, f"damaged/{FILE}": CONTENT[:-1]})
    assert run(*arguments, name=name) == 2
    error = capsys.readouterr().err
    assert words in error and error.count("\n") == 1
    assert not (tmp_path / "out").exists()
